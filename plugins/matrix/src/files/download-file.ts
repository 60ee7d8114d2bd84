import type { PluginContext } from '@sibyl/plugin-kit';
import { authorization, type Homeserver, MatrixError, segment } from '../homeserver.js';

const TIMEOUT_MS = 60_000;
const MXC = /^mxc:\/\/([^/\s]+)\/([^/\s?#]+)$/;

interface Download {
  readonly mxcUri: string;
  readonly homeserver: Homeserver;
  readonly maxBytes: number;
  readonly signal: AbortSignal;
  readonly fetch: PluginContext['fetch'];
  /** Called with the most the body can have, before any of it is read; throws to refuse it. */
  readonly reserve: (bytes: number) => void;
}

/** Reads a file's bytes, by the authenticated endpoint or, on servers that lack it, the older one. */
export async function downloadFile(download: Download): Promise<Uint8Array> {
  const [, server, media] = MXC.exec(download.mxcUri) ?? [];
  if (!server || !media) throw new MatrixError(0, 'its address is not an mxc:// one');
  const file = `${segment(server)}/${segment(media)}`;
  const response = await get(`/_matrix/client/v1/media/download/${file}`, download);
  if (response.status !== 404) return bytesOf(response, download);
  await response.body?.cancel();
  return bytesOf(await get(`/_matrix/media/v3/download/${file}`, download), download);
}

function get(path: string, { homeserver, maxBytes, signal, fetch }: Download): Promise<Response> {
  return fetch(`${homeserver.baseUrl}${path}`, {
    headers: authorization(homeserver),
    maxBytes,
    timeoutMs: TIMEOUT_MS,
    signal,
  });
}

async function bytesOf(response: Response, { maxBytes, reserve }: Download): Promise<Uint8Array> {
  try {
    if (!response.ok)
      throw new MatrixError(response.status, `the homeserver answered ${response.status}`);
    const announced = response.headers.get('content-length');
    reserve(announced === null ? maxBytes : Math.max(0, Number(announced)));
    return new Uint8Array(await response.arrayBuffer());
  } catch (error) {
    await response.body?.cancel().catch(() => undefined);
    throw error;
  }
}
