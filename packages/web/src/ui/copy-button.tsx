import { useState } from 'react';
import { t } from '../i18n/i18n.js';
import { Icon, IconButton } from './icon.js';
import { showToast } from './toasts.js';

const CONFIRMATION_MS = 1500;

interface CopyButtonProps {
  readonly text: string;
  readonly label: string;
  /** Whether the label is visible. */
  readonly hasText?: boolean;
}

/** Returns whether the text was copied; if the browser refuses, the page says so. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    showToast({ text: t('chat.copy.failed') });
    return false;
  }
}

/** Copies a text and confirms it briefly. */
export function CopyButton(props: CopyButtonProps) {
  // Only available over https:// or on localhost.
  if (!navigator.clipboard) return null;
  return <ActiveCopyButton {...props} />;
}

function ActiveCopyButton({ text, label, hasText }: CopyButtonProps) {
  const [isCopied, setCopied] = useState(false);
  const copy = async () => {
    if (!(await copyText(text))) return;
    setCopied(true);
    setTimeout(() => setCopied(false), CONFIRMATION_MS);
  };
  const icon = isCopied ? 'check' : 'copy';
  const shown = isCopied ? t('chat.copied') : label;
  if (!hasText) return <IconButton icon={icon} label={shown} onClick={copy} />;
  return (
    <button type="button" className="btn btn-s" onClick={copy}>
      <Icon name={icon} />
      {shown}
    </button>
  );
}
