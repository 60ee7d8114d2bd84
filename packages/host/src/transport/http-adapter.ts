import { createServer } from 'node:http';
import type { Socket } from 'node:net';
import { ExpressAdapter } from '@nestjs/platform-express';
import { type ErrorCode, OracleError } from '@sibyl/protocol';
import { rawAnswer } from './raw-answer.js';

/** Two tokens of 8192 characters each, and room for the rest. */
const MAX_HEADER_BYTES = 32 * 1024;

/** Express on a server with limits of its own, whose parse faults are answered as JSON too. */
export class HttpAdapter extends ExpressAdapter {
  override initHttpServer(): void {
    const server = createServer(
      {
        maxHeaderSize: MAX_HEADER_BYTES,
        headersTimeout: 15_000,
        requestTimeout: 60_000,
        // Longer than the idle time of common proxies, so that they close first.
        keepAliveTimeout: 75_000,
      },
      this.getInstance(),
    );
    server.on('clientError', (fault: NodeJS.ErrnoException, socket: Socket) => {
      if (fault.code === 'ECONNRESET' || !socket.writable) return void socket.destroy();
      socket.end(parseFaultAnswer(fault.code));
    });
    // What a client expects beyond an answer is nothing to us; Node would refuse it in words of its own.
    server.on('checkExpectation', this.getInstance());
    this.httpServer = server;
  }
}

function parseFaultAnswer(code: string | undefined): string {
  const errorCode: ErrorCode = code === 'HPE_HEADER_OVERFLOW' ? 'headers_too_large' : 'bad_request';
  return rawAnswer(new OracleError(errorCode));
}
