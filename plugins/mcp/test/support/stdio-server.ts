import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { createDemoServer } from './demo-server.ts';

await createDemoServer().connect(new StdioServerTransport());
