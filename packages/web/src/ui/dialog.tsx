import { type ReactNode, type SyntheticEvent, useEffect, useId, useRef } from 'react';
import { t } from '../i18n/i18n.js';
import { IconButton } from './icon.js';

interface DialogProps {
  readonly title: string;
  readonly onClose: () => void;
  /** Whether the title is only for screen readers. */
  readonly isTitleHidden?: boolean;
  /** Set if closing would lose something: Escape and a click outside then do nothing. */
  readonly isLocked?: boolean;
  readonly className?: string;
  readonly children: ReactNode;
}

/** A modal dialog while it is mounted. Focus returns to the element that had it. */
export function Dialog({ title, onClose, isTitleHidden, isLocked, ...props }: DialogProps) {
  const { className = '', children } = props;
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  /** Whether an event is not of a dialog inside this one. */
  const isOwn = ({ target }: SyntheticEvent) =>
    target instanceof Element && target.closest('dialog') === dialog.current;
  useEffect(() => {
    const opener = document.activeElement;
    const element = dialog.current;
    element?.showModal();
    return () => {
      element?.close();
      if (opener instanceof HTMLElement && opener.isConnected) opener.focus();
    };
  }, []);
  return (
    <dialog
      ref={dialog}
      className={`dialog ${className}`.trim()}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        if (!isLocked) onClose();
      }}
      // Browsers ask with `cancel` only once or twice, and then close it.
      onKeyDown={(event) =>
        isLocked && event.key === 'Escape' && isOwn(event) && event.preventDefault()
      }
      onClose={() => (isLocked ? dialog.current?.showModal() : onClose())}
      onClick={({ target }) => target === dialog.current && !isLocked && onClose()}
    >
      {isTitleHidden ? (
        <h2 id={id} className="vh">
          {title}
        </h2>
      ) : (
        <div className="card-head">
          <h2 id={id} className="title-2 grow">
            {title}
          </h2>
          {!isLocked && <IconButton icon="x" label={t('chat.close')} onClick={onClose} />}
        </div>
      )}
      {children}
    </dialog>
  );
}
