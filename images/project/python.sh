# install the Python requirements
pip=/opt/project/bin/pip
cat >"$TMPDIR/requirements.py" <<'end'
SCRIPTend
set --
for file in FILES; do
    case $file in
    *uv.lock)
        $pip install --quiet --target="$TMPDIR/uv" uv
        options=$(/opt/project/bin/python "$TMPDIR/requirements.py" options             "$(dirname "$file")/pyproject.toml")
        # shellcheck disable=SC2086 # the words are options
        "$TMPDIR/uv/bin/uv" export --quiet --frozen --no-default-groups $options             --directory="$(dirname "$file")" --no-emit-workspace --output-file="$TMPDIR/locked.txt"
        $pip install --quiet --no-deps --requirement="$TMPDIR/locked.txt"
        ;;
    *.toml)
        /opt/project/bin/python "$TMPDIR/requirements.py" lines "$file" >>"$TMPDIR/listed.txt"
        set -- "$@" --requirement="$TMPDIR/listed.txt"
        ;;
    *) set -- "$@" --requirement="$file" ;;
    esac
done
# All that they ask for, and not what Debian's packages have already.
[ $# = 0 ] || $pip install --quiet --upgrade --upgrade-strategy=eager "$@"
