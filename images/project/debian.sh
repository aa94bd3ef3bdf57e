# fetch Debian packages: NAMES
cd /opt/project
mkdir -p lists/partial archives/partial
set -- --quiet --yes --option=Dir::State::lists=$PWD/lists --option=Dir::Cache=$PWD \
    --option=APT::Install-Recommends=false --option=APT::Cmd::Pattern-Only=true \
    --option=Debug::NoLocking=true
apt-get "$@" update
apt-get "$@" --download-only install NAMES
mv archives/*.deb .
rm -rf lists archives *.bin
