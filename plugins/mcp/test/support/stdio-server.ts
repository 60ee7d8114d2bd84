import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { createDemoServer } from './demo-server.ts';

process.stderr.write('demo server is ready\n');
await createDemoServer().connect(new StdioServerTransport());
