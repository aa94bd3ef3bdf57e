# install the Node packages, with their own scripts
mkdir -p /opt/project/node
cp -R FOLDER/. /opt/project/node/
cd /opt/project/node
case LOCK in
package-lock.json) npm ci --no-audit --no-fund --loglevel=error ;;
pnpm-lock.yaml)
    npm exec --yes pnpm@9 -- install --frozen-lockfile --shamefully-hoist --package-import-method=copy
    ;;
yarn.lock)
    if grep -q '^__metadata:' yarn.lock; then # of Yarn 2 or newer
        case $(sed -n 's/^  version: //p;T;q' yarn.lock) in
        4) yarn=2 ;; 5 | 6) yarn=3 ;; 7 | 8) yarn=4.9.1 ;; *) yarn=4 ;;
        esac
        named=$(node -p 'require("./package.json").packageManager || ""')
        case $named in yarn@*) yarn=${named#yarn@} yarn=${yarn%%+*} ;; esac
        export YARN_NODE_LINKER=node-modules YARN_ENABLE_TELEMETRY=0 YARN_ENABLE_GLOBAL_CACHE=1
        npm exec --yes --package "@yarnpkg/cli-dist@$yarn" -- yarn install --immutable
    else
        # It has the addresses of the registry.
        registry=${npm_config_registry%/}
        sed -i -E "s#https://registry\.(yarnpkg\.com|npmjs\.org)/#$registry/#" yarn.lock
        npm exec --yes yarn@1 -- install --frozen-lockfile --no-progress
    fi
    ;;
esac
# Packages of the project itself are those of the workspace.
if [ -d node_modules ]; then
    find node_modules -maxdepth 2 -type l ! -path 'node_modules/.bin/*' | while read -r link; do
        to=$(realpath --canonicalize-missing --relative-to=. "$link")
        case $to in node_modules/*) ;; *) ln -sfn /workspace/FOLDER/"$to" "$link" ;; esac
    done
fi
