// Socket.IO alone, telling the same events at the same pace: nobody is proven, nothing is kept.
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Server } from 'socket.io';
import { beat, type Pulse } from '../pulse.ts';

const server = createServer();
new Server(server, { serveClient: false }).on('connection', (socket) => {
  const { sessionId } = socket.handshake.query;
  socket.on('pulse', async (pulse: Pulse, done: () => void) => {
    await beat(pulse, (step) =>
      socket.emit('router_update', { from: 'pulse', step, sessionId, requestId: 'request' }),
    );
    done();
  });
  socket.emit('connected');
});
server.listen(0, '127.0.0.1', () => {
  const { port } = server.address() as AddressInfo;
  process.send?.({ url: `http://127.0.0.1:${port}` });
});
