// What the host and the testing kit both hold plugins to; plugins themselves need none of it.
export { hookChecks, subAgentFault, toolFault } from './hook-checks.js';
export { dependenciesOf, type Order, orderPlugins } from './order-plugins.js';
export { OwnTables, tablePrefixOf } from './own-tables.js';
export { nameFault } from './plugin-name.js';
export { PublicRoutes } from './public-routes.js';
export { type LoadedPlugin, type SetUpHook, setUpPlugin, sharedWith } from './set-up-plugin.js';
export { turnEmit } from './turn-emit.js';
export { ValidationPipe } from './validation.pipe.js';
