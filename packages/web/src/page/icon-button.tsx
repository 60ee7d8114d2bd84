import type { ComponentProps } from 'react';
import { Icon, type IconName } from './icon.js';

interface IconButtonProps extends Omit<ComponentProps<'button'>, 'children' | 'aria-label'> {
  readonly icon: IconName;
  readonly label: string;
}

/** A button that shows only a drawing; its label is for those who cannot see it, and on hover. */
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
