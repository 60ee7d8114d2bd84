import { type FormEvent, useState } from 'react';
import { usePage } from '../page/page-context.js';
import { storedMatrix, storeMatrixToken } from './matrix-session.js';

/** Signs in at the oracle's homeserver, so that files can be attached. */
export function MatrixPanel() {
  const { settings } = usePage();
  const [token, setToken] = useState('');
  const isSignedIn = storedMatrix(settings.matrixBaseUrl) !== undefined;
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
