import { type AddressInfo, connect, createServer, type Socket } from 'node:net';

/** A wire to a port that can stop to carry anything, as when the other end loses power. */
export async function startWire(to: number) {
  const pairs: [Socket, Socket][] = [];
  const server = createServer((near) => {
    const far = connect(to, '127.0.0.1');
    for (const socket of [near, far]) socket.on('error', () => {});
    near.pipe(far).pipe(near);
    pairs.push([near, far]);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    port: (server.address() as AddressInfo).port,
    get connections() {
      return pairs.length;
    },
    fallSilent() {
      for (const [near, far] of pairs) {
        near.unpipe().pause();
        far.unpipe().pause();
      }
    },
    close() {
      for (const socket of pairs.flat()) socket.destroy();
      server.close();
    },
  };
}
