# install the Node packages, with their own scripts
mkdir -p /opt/project/node
cp -R FOLDER/. /opt/project/node/
cd /opt/project/node
case LOCK in
package-lock.json) npm ci --no-audit --no-fund --loglevel=error ;;
pnpm-lock.yaml)
    npm exec --yes pnpm@9 -- install --frozen-lockfile --shamefully-hoist --package-import-method=copy
    ;;
yarn.lock) # it has the addresses of the registry
    sed -i -E "s#https://registry\.(yarnpkg\.com|npmjs\.org)/#${npm_config_registry%/}/#" yarn.lock
    npm exec --yes yarn@1 -- install --frozen-lockfile --no-progress
    ;;
esac
