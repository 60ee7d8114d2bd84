import type { FileInfo, FilePage } from '@sibyl/protocol';
import type { HttpClient, PageOptions, RequestOptions } from './http/http-client.js';

/** The user's files at the oracle. Attach one to a message as `{ fileId }`. */
export interface Files extends ReturnType<typeof createFiles> {}

export const createFiles = (http: HttpClient) => ({
  /** Stores a file; one with the same bytes is stored once. */
  upload(
    content: Blob | Uint8Array<ArrayBuffer>,
    {
      name,
      signal,
      onProgress,
    }: RequestOptions & {
      readonly name?: string;
      /** Receives the share that was sent, from 0 to 1; only in browsers. */
      readonly onProgress?: (share: number) => void;
    } = {},
  ): Promise<FileInfo> {
    const query = { name: name ?? (content as Partial<File>).name };
    return http.requestJson({ method: 'POST', path: '/files', query, content, signal, onProgress });
  },
  /** One page, newest first; `limit` defaults to 20. */
  list(page?: PageOptions): Promise<FilePage> {
    return http.get('/files', page);
  },
  /** A file without its bytes. */
  get(fileId: string, options?: RequestOptions): Promise<FileInfo> {
    return http.get(`${toFilePath(fileId)}/info`, options);
  },
  /** The response with the bytes as its body, from `start` up to `end`, exclusive. */
  download(
    fileId: string,
    {
      start,
      end,
      signal,
    }: RequestOptions & { readonly start?: number; readonly end?: number } = {},
  ): Promise<Response> {
    const isPart = start !== undefined || end !== undefined;
    const range = `bytes=${start ?? 0}-${end === undefined ? '' : end - 1}`;
    return http.request({
      path: toFilePath(fileId),
      signal,
      ...(isPart && { headers: { range } }),
    });
  },
  async delete(fileId: string): Promise<void> {
    await http.requestJson({ method: 'DELETE', path: toFilePath(fileId) });
  },
});

const toFilePath = (fileId: string) => `/files/${encodeURIComponent(fileId)}`;
