# make a virtual environment
[ -e /opt/project/bin/python ] || python3 -m venv --system-site-packages /opt/project
if python3 -c 'import pytest' 2>/dev/null; then  # that of Debian, with the project's packages
    printf '#!%s\nimport pytest\nraise SystemExit(pytest.console_main())\n' \
        /opt/project/bin/python >/opt/project/bin/pytest
    chmod 755 /opt/project/bin/pytest
fi
cd /opt/project/lib/python3*/site-packages
cat >_wink_extensions.py <<'end'
FINDERend
echo 'import _wink_extensions' >_wink_extensions.pth
