import type { Attachment, MatrixSession } from '@sibyl/client';
import { type FormEvent, useState } from 'react';
import { usePage } from '../page/page-context.js';

/** Stores an access token for the oracle's homeserver, which attachments need. */
export function MatrixPanel() {
  const { settings } = usePage();
  const [token, setToken] = useState('');
  const isSignedIn = readMatrixSession(settings.matrixBaseUrl) !== undefined;
  const save = (event: FormEvent) => {
    event.preventDefault();
    storeMatrixToken(token.trim());
    location.reload();
  };
  const remove = () => {
    storeMatrixToken(undefined);
    location.reload();
  };
  return (
    <>
      <p>
        Files are uploaded to your account at <code>{settings.matrixBaseUrl}</code>. The access
        token is stored in this tab and sent with your messages, so that the oracle can read your
        files.
      </p>
      {isSignedIn ? (
        <button type="button" onClick={remove}>
          Remove token
        </button>
      ) : (
        <form className="fields" onSubmit={save}>
          <label>
            Access token
            <input
              required
              type="password"
              autoComplete="off"
              value={token}
              onChange={({ target }) => setToken(target.value)}
            />
          </label>
          <button type="submit" className="primary">
            Save token
          </button>
        </form>
      )}
    </>
  );
}

const KEY = 'sibyl-matrix-token';

/** Reads the user's Matrix session, which ends with the tab. */
export function readMatrixSession(homeServer: string | undefined): MatrixSession | undefined {
  const accessToken = sessionStorage.getItem(KEY);
  return homeServer && accessToken ? { homeServer, accessToken } : undefined;
}

function storeMatrixToken(accessToken: string | undefined): void {
  if (accessToken) sessionStorage.setItem(KEY, accessToken);
  else sessionStorage.removeItem(KEY);
}

/** Uploads a file with the user's rights; the oracle reads it with the same rights. */
export async function uploadFile(matrix: MatrixSession, file: File): Promise<Attachment> {
  const mimetype = file.type || 'application/octet-stream';
  const name = encodeURIComponent(file.name);
  const response = await fetch(`${matrix.homeServer}/_matrix/media/v3/upload?filename=${name}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${matrix.accessToken}`, 'content-type': mimetype },
    body: file,
  });
  const reply = await response.json();
  if (!response.ok)
    throw new Error(reply.error ?? `the homeserver returned status ${response.status}`);
  return { mxcUri: reply.content_uri, filename: file.name, mimetype, size: file.size };
}
