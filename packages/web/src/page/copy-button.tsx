import { useState } from 'react';
import { IconButton } from './icon-button.js';

const SHOWN_MS = 1500;

/** Copies a text, and says so for a moment. */
export function CopyButton({ text, label }: { readonly text: string; readonly label: string }) {
  // Browsers give it only to pages from https:// or this machine.
  if (!navigator.clipboard) return null;
  return <WorkingButton text={text} label={label} />;
}

function WorkingButton({ text, label }: { readonly text: string; readonly label: string }) {
  const [isCopied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), SHOWN_MS);
  };
  return (
    <IconButton
      className="copy"
      icon={isCopied ? 'check' : 'copy'}
      label={isCopied ? 'Copied' : label}
      onClick={copy}
    />
  );
}
