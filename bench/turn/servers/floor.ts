// The floor in a process of its own: arguments are the model's URL, the folder for its data, how it asks, and whether it has a tool.
import { startFloorServer } from './floor-server.ts';

const [modelUrl = '', dataDir = '', client, tool] = process.argv.slice(2);
const url = await startFloorServer({
  modelUrl,
  dataDir,
  client: client === 'http' ? 'http' : 'fetch',
  hasTool: tool === 'with-tool',
});
process.send?.({ url });
