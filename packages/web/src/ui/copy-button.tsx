import { useState } from 'react';
import { t } from '../i18n/i18n.js';
import { IconButton } from './icon.js';

const CONFIRMATION_MS = 1500;

interface CopyButtonProps {
  readonly text: string;
  readonly label: string;
}

/** Copies a text and confirms it briefly. */
export function CopyButton(props: CopyButtonProps) {
  // Only available over https:// or on localhost.
  if (!navigator.clipboard) return null;
  return <ActiveCopyButton {...props} />;
}

function ActiveCopyButton({ text, label }: CopyButtonProps) {
  const [isCopied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), CONFIRMATION_MS);
  };
  return (
    <IconButton
      icon={isCopied ? 'check' : 'copy'}
      label={isCopied ? t('chat.copied') : label}
      onClick={copy}
    />
  );
}
