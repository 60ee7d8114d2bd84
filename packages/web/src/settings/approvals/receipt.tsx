import { type Approval, checkReceipt } from '@sibyl/client';
import { useOracle } from '@sibyl/client/react';
import { useState } from 'react';
import { formatDateTime } from '../../i18n/format.js';
import { type TextKey, t } from '../../i18n/i18n.js';
import { Icon } from '../../ui/icon.js';
import { Failure, saveFile, useAction } from '../parts.js';
import { Arguments } from './approval-card.js';
import { humanize, listFields } from './arguments.js';

const titles = {
  pending: 'settings.receipt.pending',
  approved: 'settings.receipt.approved',
  denied: 'settings.receipt.denied',
  expired: 'settings.receipt.expired',
  cancelled: 'settings.receipt.cancelled',
} as const satisfies Record<Approval['status'], TextKey>;

/** A decision, and its proof. */
export function Receipt({ approval }: { readonly approval: Approval }) {
  const { facts, status, args, inputSchema, approvedArgs, decidedAt, reason, isSigned } = approval;
  return (
    <article className="approval receipt">
      <div className="approval-head">
        <Icon name={status === 'approved' ? 'check' : 'x'} />
        <div className="grow">
          <h3 className="title-2">{t(titles[status], { action: humanize(facts.tool) })}</h3>
          <p className="small quiet">
            {decidedAt && formatDateTime(decidedAt)}
            {isSigned && ` · ${t('settings.receipt.signed')}`}
          </p>
        </div>
      </div>
      <div className="approval-body">
        <Arguments args={args} edited={approvedArgs} fields={listFields(args, inputSchema)} />
        {reason && (
          <p dir="auto">
            {t('settings.receipt.reason')} {reason}
          </p>
        )}
        {isSigned && <ReceiptActions id={approval.id} />}
      </div>
    </article>
  );
}

/** Downloads the receipt, and checks it here. */
export function ReceiptActions({ id }: { readonly id: string }) {
  const { approvals } = useOracle();
  const [isValid, setValid] = useState<boolean>();
  const { isBusy, error, run } = useAction();
  const download = () =>
    run(async () => {
      const text = await approvals.receipt(id);
      // Byte for byte: the signature covers the text.
      saveFile(`receipt-${id.slice(0, 12)}.json`, text, 'application/json');
    });
  const verify = () =>
    run(async () => setValid(await checkReceipt(await approvals.receipt(id), id)));
  return (
    <>
      <div className="actions">
        <button type="button" className="btn btn-s" disabled={isBusy} onClick={download}>
          <Icon name="save" />
          {t('settings.receipt.download')}
        </button>
        <button type="button" className="btn btn-quiet btn-s" disabled={isBusy} onClick={verify}>
          {t('settings.receipt.verify')}
        </button>
        <span role="status">
          {isValid !== undefined && (
            <span className={isValid ? 'badge is-good' : 'badge is-fault'}>
              <Icon name={isValid ? 'check' : 'alert'} />
              {t(isValid ? 'settings.receipt.valid' : 'settings.receipt.invalid')}
            </span>
          )}
        </span>
      </div>
      {isValid && <p className="hint">{t('settings.receipt.elsewhere')}</p>}
      <Failure error={error} />
    </>
  );
}
