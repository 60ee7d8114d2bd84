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
}

/** Reads a file's bytes, by the authenticated endpoint or, on servers that lack it, the older one. */
export async function downloadFile(download: Download): Promise<Uint8Array> {
  const [, server, media] = MXC.exec(download.mxcUri) ?? [];
  if (!server || !media) throw new MatrixError(0, 'its address is not an mxc:// one');
  const file = `${segment(server)}/${segment(media)}`;
  const response = await get(`/_matrix/client/v1/media/download/${file}`, download);
  if (response.status !== 404) return bytesOf(response);
  await response.body?.cancel();
  return bytesOf(await get(`/_matrix/media/v3/download/${file}`, download));
}

function get(path: string, { homeserver, maxBytes, signal, fetch }: Download): Promise<Response> {
  return fetch(`${homeserver.baseUrl}${path}`, {
    headers: authorization(homeserver),
    maxBytes,
    timeoutMs: TIMEOUT_MS,
    signal,
  });
}

async function bytesOf(response: Response): Promise<Uint8Array> {
  if (response.ok) return new Uint8Array(await response.arrayBuffer());
  await response.body?.cancel();
  throw new MatrixError(response.status, `the homeserver answered ${response.status}`);
}
