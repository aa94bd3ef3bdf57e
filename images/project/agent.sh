# fetch the agent program NAME
cp -R . /opt/project/
cd /opt/project
npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
