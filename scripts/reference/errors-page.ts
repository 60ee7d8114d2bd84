import { GrpcCode, httpStatusOf } from '@sibyl/gateway';
import { errorCatalog } from '@sibyl/protocol';
import { page, table } from './page.ts';

/** Every error a client of the host or of the gateway can meet. */
export function errorsPage(): string {
  const codes = Object.entries(errorCatalog).map(([code, [status, text]]) => [
    `\`${code}\``,
    `${status}`,
    text.replaceAll('<', '\\<'),
  ]);
  return page(
    'Errors',
    'Every error is JSON: `{statusCode, message, error, code, requestId}`. `code` is for programs and stays the same; `message` is for people, and for a body or query that does not fit it is a list with one line per field.',
    table(['Code', 'Status', 'Text'], codes),
    '## Of the gateway',
    'The [gateway](gateway.md) answers as a node does: `{code, message, details}`, where `code` is that of gRPC. Where HTTP has a better word the status is another: 405 for a method that a route does not have, 413 for what is too large, 414 for an address that is too long.',
    table(['Code', 'Name', 'Status'], gatewayCodes()),
  );
}

const gatewayCodes = () =>
  Object.entries(GrpcCode)
    .filter(([, code]) => code !== GrpcCode.ok)
    .map(([name, code]) => [`${code}`, nameInGrpc(name), `${httpStatusOf(code)}`]);

const nameInGrpc = (name: string) => `\`${name.replace(/[A-Z]/g, '_$&').toUpperCase()}\``;
