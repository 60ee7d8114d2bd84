import { importBrowserKey } from '@sibyl/client';
import { type FormEvent, useEffect, useState } from 'react';
import { CopyButton } from '../page/icon-button.js';
import { usePage } from '../page/page-context.js';

/** The key the user is known by: shown, taken out once, or replaced by another. */
export function KeyPanel() {
  const { signer } = usePage();
  return (
    <>
      <p>You are known by this DID. Its key was made in this browser and signs every request.</p>
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
        <p>Keep it where nobody else can read it. It is shown only this once.</p>
        <p className="identity">
          <code data-testid="private-key">{text}</code>
          <CopyButton text={text} label="Copy the private key" />
        </p>
      </section>
    );
  }
  return (
    <section>
      <h3>Take it with you</h3>
      {canExport ? (
        <>
          <p>
            Export the key to use it in another browser or on the command line. That works once;
            afterwards the key cannot be read from this browser again.
          </p>
          <button type="button" onClick={async () => setText(await signer.exportKey())}>
            Export the key
          </button>
        </>
      ) : (
        <p>This key was exported or imported before, and cannot be read from this browser again.</p>
      )}
    </section>
  );
}

function ImportKey() {
  const [text, setText] = useState('');
  const [fault, setFault] = useState<string>();
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    try {
      await importBrowserKey(text.trim());
      location.reload();
    } catch (error) {
      setFault((error as Error).message);
    }
  };
  return (
    <section>
      <h3>Use another key</h3>
      <p>It replaces the one above. Export that first if you want to come back to it.</p>
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
        {fault && (
          <p className="fault" role="alert">
            {fault}
          </p>
        )}
        <button type="submit">Import</button>
      </form>
    </section>
  );
}
