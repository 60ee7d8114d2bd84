import { useEffect, useState } from 'react';
import { t } from '../../i18n/i18n.js';
import { Dialog } from '../../ui/dialog.js';

/** Keeps the user on the screen while something on it is not saved, and asks first. */
export function LeaveGuard({ isActive }: { readonly isActive: boolean }) {
  const [wanted, setWanted] = useState<string>();
  useEffect(() => {
    if (!isActive) return;
    const here = location.href;
    const stay = (event: Event) => {
      if (location.href === here || event instanceof LeaveEvent) return;
      // The router must not see the new address.
      event.stopImmediatePropagation();
      setWanted(location.hash);
      history.replaceState(history.state, '', here);
    };
    const warn = (event: BeforeUnloadEvent) => event.preventDefault();
    window.addEventListener('hashchange', stay, true);
    window.addEventListener('popstate', stay, true);
    window.addEventListener('beforeunload', warn);
    return () => {
      window.removeEventListener('hashchange', stay, true);
      window.removeEventListener('popstate', stay, true);
      window.removeEventListener('beforeunload', warn);
      setWanted(undefined);
    };
  }, [isActive]);
  if (wanted === undefined) return null;
  return <LeaveQuestion wanted={wanted} onStay={() => setWanted(undefined)} />;
}

interface LeaveQuestionProps {
  readonly wanted: string;
  readonly onStay: () => void;
}

function LeaveQuestion({ wanted, onStay }: LeaveQuestionProps) {
  const leave = () => {
    onStay();
    history.replaceState(history.state, '', wanted);
    // As `replaceState` reports no change.
    window.dispatchEvent(new LeaveEvent('hashchange'));
  };
  return (
    <Dialog title={t('settings.leave.title')} onClose={onStay}>
      <div className="card-pad stack">
        <p>{t('settings.leave.text')}</p>
        <div className="actions">
          <button type="button" className="btn btn-primary" onClick={onStay}>
            {t('settings.leave.stay')}
          </button>
          <button type="button" className="btn btn-danger" onClick={leave}>
            {t('settings.leave.leave')}
          </button>
        </div>
      </div>
    </Dialog>
  );
}

/** A change of the address that the user has confirmed. */
class LeaveEvent extends HashChangeEvent {}
