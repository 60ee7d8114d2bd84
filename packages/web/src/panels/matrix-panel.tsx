import type { Attachment, MatrixSession } from '@sibyl/client';
import { type FormEvent, useState } from 'react';
import { usePage } from '../page/page-context.js';

/** Signs in at the oracle's homeserver, so that files can be attached. */
export function MatrixPanel() {
  const { settings } = usePage();
  const [token, setToken] = useState('');
  const isSignedIn = readMatrixSession(settings.matrixBaseUrl) !== undefined;
  const keep = (event: FormEvent) => {
    event.preventDefault();
    storeMatrixToken(token.trim());
    location.reload();
  };
  const leave = () => {
    storeMatrixToken(undefined);
    location.reload();
  };
  return (
    <>
      <p>
        Files go through your account at <code>{settings.matrixBaseUrl}</code>. The access token
        stays in this tab and is sent with your messages, so that the oracle can read your files.
      </p>
      {isSignedIn ? (
        <button type="button" onClick={leave}>
          Forget the token
        </button>
      ) : (
        <form className="fields" onSubmit={keep}>
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
            Use it
          </button>
        </form>
      )}
    </>
  );
}

const KEY = 'sibyl-matrix-token';

/** The user's session at the oracle's homeserver, if they have given one; it ends with the tab. */
export function readMatrixSession(homeServer: string | undefined): MatrixSession | undefined {
  const accessToken = sessionStorage.getItem(KEY);
  return homeServer && accessToken ? { homeServer, accessToken } : undefined;
}

function storeMatrixToken(accessToken: string | undefined): void {
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
