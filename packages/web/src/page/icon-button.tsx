import { type ComponentProps, useState } from 'react';

interface IconButtonProps extends Omit<ComponentProps<'button'>, 'children' | 'aria-label'> {
  readonly icon: IconName;
  readonly label: string;
}

/** A button with an icon; its label is for screen readers and the tooltip. */
export function IconButton({ icon, label, className = '', ...rest }: IconButtonProps) {
  return (
    <button
      type="button"
      className={`icon-button ${className}`}
      aria-label={label}
      title={label}
      {...rest}
    >
      <Icon name={icon} />
    </button>
  );
}

const CONFIRMATION_MS = 1500;

/** Copies a text and confirms it briefly. */
export function CopyButton({ text, label }: { readonly text: string; readonly label: string }) {
  // Only available over https:// or on localhost.
  if (!navigator.clipboard) return null;
  return <ActiveCopyButton text={text} label={label} />;
}

function ActiveCopyButton({ text, label }: { readonly text: string; readonly label: string }) {
  const [isCopied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), CONFIRMATION_MS);
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

const paths = {
  menu: 'M4 7h16M4 12h16M4 17h16',
  plus: 'M12 5v14M5 12h14',
  send: 'M5 12h13M12 5l7 7-7 7',
  stop: 'M7 7h10v10H7z',
  trash: 'M5 7h14M10 7V5h4v2M7 7l1 12h8l1-12M10 11v5M14 11v5',
  pencil: 'M5 19l1-4L16 5l3 3L9 18z',
  copy: 'M9 9h10v11H9zM6 15H5V4h10v2',
  check: 'M5 13l4 4L19 7',
  close: 'M6 6l12 12M18 6L6 18',
  key: 'M14 10a4 4 0 1 0-3.500 3.970L13 16h2v2h2v2h3v-3l-6.200-6.200A4 4 0 0 0 14 10zM9 9h.01',
  sliders: 'M5 8h8M17 8h2M15 6v4M5 16h2M11 16h8M9 14v4',
  shield: 'M12 4l7 3v5c0 4-3 7-7 8-4-1-7-4-7-8V7z',
  pulse: 'M3 12h4l3-7 4 14 3-7h4',
  clip: 'M17 9l-6.500 6.500a2 2 0 0 0 3 3L20 12a4 4 0 0 0-6-6l-7 7a6 6 0 0 0 8.500 8.500',
  file: 'M7 4h7l4 4v12H7zM14 4v4h4',
} as const;

export type IconName = keyof typeof paths;

/** Hidden from screen readers: the label beside it is enough. */
export function Icon({ name }: { readonly name: IconName }) {
  return (
    <svg className="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false">
      <path d={paths[name]} />
    </svg>
  );
}
