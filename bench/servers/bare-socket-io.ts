// Socket.IO alone, which sends the same events at the same rate, without authentication or storage.
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Server } from 'socket.io';
import { type Pulse, sendPulse } from '../events/pulse.ts';

const server = createServer();
new Server(server, { serveClient: false }).on('connection', (socket) => {
  const { sessionId } = socket.handshake.query;
  socket.on('pulse', async (pulse: Pulse, done: () => void) => {
    await sendPulse(pulse, (step) =>
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
