// What the host and the testing kit both hold plugins to; plugins themselves need none of it.

export { turnEmit } from '../context.js';
export { hookChecks, subAgentFault, toolFault } from './hook-checks.js';
export { OwnTables, tablePrefixOf } from './own-tables.js';
export {
  dependenciesOf,
  type LoadedPlugin,
  nameFault,
  type Order,
  orderPlugins,
  type SetUpHook,
  setUpPlugin,
  sharedWith,
} from './plugin-setup.js';
export { PublicRoutes, ValidationPipe } from './route-rules.js';
