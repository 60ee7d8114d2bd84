import type { Attachment, MatrixSession } from '@sibyl/client';

const KEY = 'sibyl-matrix-token';

/** The user's session at the oracle's homeserver, if they have given one; it ends with the tab. */
export function storedMatrix(homeServer: string | undefined): MatrixSession | undefined {
  const accessToken = sessionStorage.getItem(KEY);
  return homeServer && accessToken ? { homeServer, accessToken } : undefined;
}

export function storeMatrixToken(accessToken: string | undefined): void {
  if (accessToken) sessionStorage.setItem(KEY, accessToken);
  else sessionStorage.removeItem(KEY);
}

/** Puts a file where the oracle can read it with the user's own rights. */
export async function uploadFile(matrix: MatrixSession, file: File): Promise<Attachment> {
  const mimetype = file.type || 'application/octet-stream';
  const name = encodeURIComponent(file.name);
  const response = await fetch(`${matrix.homeServer}/_matrix/media/v3/upload?filename=${name}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${matrix.accessToken}`, 'content-type': mimetype },
    body: file,
  });
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error ?? `the homeserver answered ${response.status}`);
  return { mxcUri: answer.content_uri, filename: file.name, mimetype, size: file.size };
}
