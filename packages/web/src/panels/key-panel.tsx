import { importBrowserKey } from '@sibyl/client';
import { type FormEvent, useEffect, useState } from 'react';
import { usePage } from '../page/page-context.js';
import { CopyButton } from '../ui/copy-button.js';

/** Shows, exports and replaces the user's key. */
export function KeyPanel() {
  const { signer } = usePage();
  return (
    <>
      <p>
        This DID identifies you. Its private key is stored in this browser and signs every request.
      </p>
      <p className="identity">
        <code>{signer.did}</code>
        <CopyButton text={signer.did} label="Copy your DID" />
      </p>
      <ExportKey />
      <ImportKey />
    </>
  );
}

function ExportKey() {
  const { signer } = usePage();
  const [canExport, setCanExport] = useState(false);
  const [text, setText] = useState<string>();
  useEffect(() => {
    signer.canExport().then(setCanExport, () => undefined);
  }, [signer]);
  if (text) {
    return (
      <section>
        <h3>Your private key</h3>
        <p>Store it in a safe place. It is shown only once.</p>
        <p className="identity">
          <code data-testid="private-key">{text}</code>
          <CopyButton text={text} label="Copy private key" />
        </p>
      </section>
    );
  }
  return (
    <section>
      <h3>Export</h3>
      {canExport ? (
        <>
          <p>
            Export your key to use it in another browser or on the command line. You can do this
            only once. If you clear this site’s data without an exported key, you lose access to
            your conversations.
          </p>
          <button type="button" onClick={async () => setText(await signer.exportKey())}>
            Export key
          </button>
        </>
      ) : (
        <p>
          This key was already exported or imported. It cannot be exported from this browser again.
        </p>
      )}
    </section>
  );
}

function ImportKey() {
  const [text, setText] = useState('');
  const [failure, setFailure] = useState<string>();
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    try {
      await importBrowserKey(text.trim());
      location.reload();
    } catch (error) {
      setFailure((error as Error).message);
    }
  };
  return (
    <section>
      <h3>Use another key</h3>
      <p>
        The imported key replaces the one above. Export the current key first if you still need it.
      </p>
      <form className="fields" onSubmit={submit}>
        <label>
          Private key
          <input
            required
            type="password"
            autoComplete="off"
            value={text}
            onChange={({ target }) => setText(target.value)}
          />
        </label>
        {failure && (
          <p className="error" role="alert">
            {failure}
          </p>
        )}
        <button type="submit">Import</button>
      </form>
    </section>
  );
}
