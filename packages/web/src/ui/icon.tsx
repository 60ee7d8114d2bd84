import type { ComponentProps } from 'react';

const paths = {
  eye: 'M2 12s3.6-6.5 10-6.5S22 12 22 12s-3.6 6.5-10 6.5S2 12 2 12zM9.2 12a2.8 2.8 0 1 0 5.6 0a2.8 2.8 0 1 0 -5.6 0',
  plus: 'M12 5v14M5 12h14',
  search: 'M20 20l-4.2-4.2M4.5 11a6.5 6.5 0 1 0 13 0a6.5 6.5 0 1 0 -13 0',
  copy: 'M15.5 8.5V6a2 2 0 0 0-2-2H6a2 2 0 0 0-2 2v7.5a2 2 0 0 0 2 2h2.5M10.5 8.5H18a2 2 0 0 1 2 2V18a2 2 0 0 1-2 2h-7.5a2 2 0 0 1-2-2v-7.5a2 2 0 0 1 2-2z',
  edit: 'M4 20l.9-4L16.4 4.5a2 2 0 0 1 2.8 0l.3.3a2 2 0 0 1 0 2.8L8 19.1zM14.5 6.5l3 3',
  redo: 'M20 11.5a8 8 0 1 0-2.3 6.2M20 5v6.5h-6.5',
  up: 'M7 11v9H4v-9zM7 11l4-7.5a2 2 0 0 1 2.5 2.3L13 9.5h5a2 2 0 0 1 2 2.4l-1.2 6.5A2 2 0 0 1 16.8 20H7',
  down: 'M7 13V4H4v9zM7 13l4 7.5a2 2 0 0 0 2.5-2.3L13 14.5h5a2 2 0 0 0 2-2.4l-1.2-6.5A2 2 0 0 0 16.8 4H7',
  more: 'M4.6 12a.6.6 0 1 0 1.2 0 .6.6 0 1 0-1.2 0M11.4 12a.6.6 0 1 0 1.2 0 .6.6 0 1 0-1.2 0M18.2 12a.6.6 0 1 0 1.2 0 .6.6 0 1 0-1.2 0',
  right: 'M9.5 5.5L16 12l-6.5 6.5',
  left: 'M14.5 5.5L8 12l6.5 6.5',
  chev: 'M5.5 9.5L12 16l6.5-6.5',
  check: 'M4.5 12.5l5 5L19.5 7',
  x: 'M6 6l12 12M18 6L6 18',
  alert:
    'M12 8v5M12 16.5h.01M10.3 4L2.7 17.2A2 2 0 0 0 4.4 20.2h15.2a2 2 0 0 0 1.7-3L13.7 4a2 2 0 0 0-3.4 0z',
  info: 'M12 11v5.5M12 7.5h.01M3 12a9 9 0 1 0 18 0a9 9 0 1 0 -18 0',
  clock: 'M12 7v5l3.5 2M3 12a9 9 0 1 0 18 0a9 9 0 1 0 -18 0',
  lock: 'M7.5 11V8a4.5 4.5 0 0 1 9 0v3M6 11h12a1 1 0 0 1 1 1v7a1 1 0 0 1-1 1H6a1 1 0 0 1-1-1v-7a1 1 0 0 1 1-1z',
  key: 'M11 13l8.5-8.5M15.5 8.5l3 3M18 6l2.5 2.5M4 16a4 4 0 1 0 8 0a4 4 0 1 0 -8 0',
  shield: 'M12 3l7.5 2.8v5.7c0 4.5-3 8-7.5 9.5-4.5-1.5-7.5-5-7.5-9.5V5.8z',
  file: 'M14 3H7a2 2 0 0 0-2 2v14a2 2 0 0 0 2 2h10a2 2 0 0 0 2-2V8zM14 3v5h5',
  clip: 'M20 11.5l-8.3 8.3a5 5 0 0 1-7-7L13 4.5a3.3 3.3 0 0 1 4.7 4.7l-8.2 8.2a1.7 1.7 0 0 1-2.4-2.4l7.6-7.5',
  send: 'M12 19V5M5.5 11.5L12 5l6.5 6.5',
  fall: 'M12 5v14M5.5 12.5L12 19l6.5-6.5',
  stop: 'M7.5 6h9A1.5 1.5 0 0 1 18 7.5v9a1.5 1.5 0 0 1-1.5 1.5h-9A1.5 1.5 0 0 1 6 16.5v-9A1.5 1.5 0 0 1 7.5 6z',
  tool: 'M14.5 6.5a4 4 0 0 1 5-2.3l-2.7 2.7.4 2 2 .4 2.6-2.7a4 4 0 0 1-5.3 5L8.5 19.6a2.1 2.1 0 0 1-3-3l8-8a4 4 0 0 1 1-2.1z',
  mail: 'M4 6h16a1 1 0 0 1 1 1v10a1 1 0 0 1-1 1H4a1 1 0 0 1-1-1V7a1 1 0 0 1 1-1zM3.5 7l8.5 6 8.5-6',
  link: 'M10 14a4.5 4.5 0 0 0 6.4 0l3-3A4.5 4.5 0 0 0 13 4.6l-1 1M14 10a4.5 4.5 0 0 0-6.4 0l-3 3a4.5 4.5 0 0 0 6.4 6.4l1-1',
  cal: 'M5 5.5h14a1 1 0 0 1 1 1V19a1 1 0 0 1-1 1H5a1 1 0 0 1-1-1V6.5a1 1 0 0 1 1-1zM4 10h16M8.5 3.5v4M15.5 3.5v4',
  mark: 'M7 4h10a1 1 0 0 1 1 1v15.5l-6-4-6 4V5a1 1 0 0 1 1-1z',
  chart: 'M4.5 20V11M10 20V4M15.5 20v-6M20.5 20h-17M20 20V8.5',
  pulse: 'M3 12h4l2.5-7 5 14L17 12h4',
  users:
    'M3 19.5a6 6 0 0 1 12 0M16 5a3.5 3.5 0 0 1 0 6.8M17.5 14.3a6 6 0 0 1 3.5 5.2M5.5 8.5a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0',
  pin: 'M9 4h6l-.7 6 3.2 3.5H6.5L9.7 10zM12 13.5V20.5',
  trash:
    'M4.5 6.5h15M9 6.5V4.5h6v2M6.5 6.5l.8 12.6a1 1 0 0 0 1 .9h7.4a1 1 0 0 0 1-.9l.8-12.6M10 10.5v5.5M14 10.5v5.5',
  save: 'M12 4v11M7 10.5l5 5 5-5M4.5 19.5h15',
  words: 'M4 6.5h7M4 12h7M4 17.5h7M15 6.5h5M15 12h5M15 17.5h5',
  qr: 'M4 4h6v6H4zM14 4h6v6h-6zM4 14h6v6H4zM14 14h2.5v2.5H14zM20 14v.01M20 20v.01M14 20h2.5',
  menu: 'M4 7h16M4 12h16M4 17h16',
  off: 'M3 3l18 18M2.5 9a14 14 0 0 1 4.5-2.8M10.5 5.2A14 14 0 0 1 21.5 9M6 12.7a9 9 0 0 1 4-2.3M15.5 11.2a9 9 0 0 1 2.5 1.5M9.5 16.3a4 4 0 0 1 5 0M12 19.5h.01',
  coin: 'M12 7.5v9M14.5 9.5c-.5-1-4.8-1.3-4.8.8 0 2.2 5 1.2 5 3.5 0 2.2-4.5 2-5.2.7M3 12a9 9 0 1 0 18 0a9 9 0 1 0 -18 0',
  gear: 'M12 3v3M12 18v3M3 12h3M18 12h3M5.6 5.6l2.1 2.1M16.3 16.3l2.1 2.1M5.6 18.4l2.1-2.1M16.3 7.7l2.1-2.1M8 12a4 4 0 1 0 8 0a4 4 0 1 0 -8 0',
  wrap: 'M4 6h16M4 12h12.5a3 3 0 0 1 0 6H12M14 15.5L11.5 18l2.5 2.5M4 18h3',
  chat: 'M5 5h14a1.5 1.5 0 0 1 1.5 1.5v9A1.5 1.5 0 0 1 19 17h-7l-4.5 3.5V17H5a1.5 1.5 0 0 1-1.5-1.5v-9A1.5 1.5 0 0 1 5 5z',
  ask: 'M8 12.4l2.8 2.8 5.4-5.8M3 12a9 9 0 1 0 18 0a9 9 0 1 0 -18 0',
  sliders: 'M5 8h8M17 8h2M15 6v4M5 16h2M11 16h8M9 14v4',
} as const;

export type IconName = keyof typeof paths;

interface IconProps {
  readonly name: IconName;
  /** Mirrored where text runs from right to left. */
  readonly flip?: boolean;
  readonly className?: string;
}

/** Hidden from screen readers: the label beside it is enough. */
export function Icon({ name, flip, className }: IconProps) {
  const classes = ['i', flip && 'i-flip', className].filter(Boolean).join(' ');
  return (
    <svg className={classes} viewBox="0 0 24 24" aria-hidden="true" focusable="false">
      <path d={paths[name]} />
    </svg>
  );
}

interface IconButtonProps extends Omit<ComponentProps<'button'>, 'children' | 'aria-label'> {
  readonly icon: IconName;
  readonly label: string;
  readonly flip?: boolean;
}

/** A button with an icon; its label is for screen readers and the tooltip. */
export function IconButton({ icon, label, flip, className = '', ...rest }: IconButtonProps) {
  return (
    <button
      type="button"
      className={`icon-btn ${className}`.trim()}
      aria-label={label}
      title={label}
      {...rest}
    >
      <Icon name={icon} {...(flip && { flip })} />
    </button>
  );
}
