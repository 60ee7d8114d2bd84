import { OracleError } from '@sibyl/protocol';
import type { NextFunction, Request, Response } from 'express';

/** What this file reads of a layer of Express's router. */
interface Layer {
  readonly route?: { readonly path: string; readonly methods: Readonly<Record<string, boolean>> };
  match(path: string): boolean;
}

/** The methods that the routes of a path answer, for `Allow`; empty where no route has this path. */
export function findAllowedMethods({ app, path }: Request): readonly string[] {
  const layers = app.router.stack as unknown as readonly Layer[];
  const matching = layers.flatMap((layer) =>
    layer.route && matches(layer, path) ? layer.route : [],
  );
  // `/messages/abort` is a resource of its own, although `/messages/:sessionId` matches it too.
  const literal = matching.filter((route) => !/[:*{]/.test(route.path));
  const found = (literal.length > 0 ? literal : matching)
    .flatMap(({ methods }) => Object.keys(methods))
    .map((method) => method.toUpperCase());
  if (found.length === 0) return [];
  // Express answers HEAD wherever there is a GET; OPTIONS is answered below.
  const implied = found.includes('GET') ? ['HEAD', 'OPTIONS'] : ['OPTIONS'];
  return [...new Set([...found, ...implied])].sort();
}

/** A path whose percent-encoding is broken belongs to no route. */
function matches(layer: Layer, path: string): boolean {
  try {
    return layer.match(path);
  } catch {
    return false;
  }
}

/** Why no route took a request: its path is unknown, or known with other methods only. */
export function explainUnmatched(request: Request, response: Response): OracleError {
  const allowed = findAllowedMethods(request);
  if (allowed.length === 0 || allowed.includes(request.method)) return new OracleError('not_found');
  response.setHeader('Allow', allowed.join(', '));
  return new OracleError('method_not_allowed', {
    message: `${request.method} is not allowed here; use one of ${allowed.join(', ')}`,
  });
}

/** Answers OPTIONS: preflights for every path, other requests with the methods of a known path. */
export function answerOptions(request: Request, response: Response, next: NextFunction): void {
  if (request.method !== 'OPTIONS') return void next();
  const allowed = findAllowedMethods(request);
  const isPreflight = request.headers['access-control-request-method'] !== undefined;
  if (allowed.length === 0 && !isPreflight) return void next();
  if (allowed.length > 0) response.setHeader('Allow', allowed.join(', '));
  response.status(204).end();
}
