import { exportBrowserSeed, packSeed } from '@sibyl/client/identities';
import { useEffect, useState } from 'react';
import { t } from '../../i18n/i18n.js';
import { Failure, useAction } from '../parts.js';
import type { BackupProps } from './backup-file.js';
import { PARAMETER } from './device-link.js';

/** The code disappears, since anyone who sees the screen could photograph it. */
const SHOWN_SECONDS = 90;
/** Of the number for the other device. */
const DIGITS = 6;

interface ShownCode {
  readonly path: string;
  readonly size: number;
  readonly number: string;
}

/** A QR code that copies the key to another device. */
export function DeviceBackup({ identity, onStep, onDone }: BackupProps) {
  const [code, setCode] = useState<ShownCode>();
  const [wasShown, setWasShown] = useState(false);
  const { isBusy, error, run } = useAction();
  const show = () =>
    run(async () => {
      const number = chooseNumber();
      const packed = await packSeed(await exportBrowserSeed(identity.did), number);
      setCode({ ...(await drawQrCode(formatDeviceLink(packed))), number });
      setWasShown(true);
      onStep('save');
    });
  const hide = () => {
    setCode(undefined);
    onStep('check');
  };
  return (
    <div className="stack">
      {code ? <Code code={code} onExpired={hide} /> : <p>{t('settings.backup.device.intro')}</p>}
      <Failure error={error} />
      <div className="actions">
        {wasShown && (
          <button
            type="button"
            className="btn btn-primary"
            disabled={isBusy}
            onClick={() => void run(onDone)}
          >
            {t('settings.backup.device.works')}
          </button>
        )}
        {!code && (
          <button
            type="button"
            className={wasShown ? 'btn' : 'btn btn-primary'}
            disabled={isBusy}
            onClick={show}
          >
            {isBusy ? t('settings.backup.encrypting') : t('settings.backup.device.show')}
          </button>
        )}
        {wasShown && (
          <button
            type="button"
            className="btn btn-quiet"
            onClick={() => {
              setCode(undefined);
              setWasShown(false);
              onStep('choose');
            }}
          >
            {t('chat.cancel')}
          </button>
        )}
      </div>
    </div>
  );
}

function Code({ code, onExpired }: { readonly code: ShownCode; readonly onExpired: () => void }) {
  const [left, setLeft] = useState(SHOWN_SECONDS);
  useEffect(() => {
    const timer = setInterval(() => setLeft((seconds) => seconds - 1), 1000);
    return () => clearInterval(timer);
  }, []);
  useEffect(() => {
    if (left <= 0) onExpired();
  }, [left]);
  return (
    <div className="line qr-line">
      <div className="qr qr-large">
        <svg
          viewBox={`0 0 ${code.size} ${code.size}`}
          role="img"
          aria-label={t('settings.backup.device.qr')}
          shapeRendering="crispEdges"
        >
          <path d={code.path} fill="currentColor" />
        </svg>
      </div>
      <div className="grow stack stack-2">
        <p className="strong">{t('settings.backup.device.scan')}</p>
        <p className="quiet">{t('settings.backup.device.type')}</p>
        <p className="code-num num" dir="ltr">
          {formatNumberPairs(code.number)}
        </p>
        <p className="hint">{t('settings.backup.device.left', { count: Math.max(left, 0) })}</p>
      </div>
    </div>
  );
}

/** The address for the QR code. What follows `#` is not sent to any server. */
function formatDeviceLink(packed: Uint8Array): string {
  const page = location.href.split('#')[0];
  return `${page}#${PARAMETER}=${formatBase64Url(packed)}`;
}

/** A number for the other device, without which the QR code is useless. */
function chooseNumber(): string {
  const digits = crypto.getRandomValues(new Uint32Array(DIGITS));
  return Array.from(digits, (random) => random % 10).join('');
}

/** In pairs, as people read it out. */
const formatNumberPairs = (number: string): string => number.match(/../g)?.join(' ') ?? number;

/** A QR code as an SVG path; each module is one unit. */
async function drawQrCode(text: string): Promise<{ readonly path: string; readonly size: number }> {
  const { default: encodeQR } = await import('qr');
  const rows = encodeQR(text, 'raw', { border: 1, ecc: 'medium' });
  const path = rows
    .flatMap((row, y) => row.flatMap((isDark, x) => (isDark ? [`M${x} ${y}h1v1h-1z`] : [])))
    .join('');
  return { path, size: rows.length };
}

const formatBase64Url = (bytes: Uint8Array): string =>
  btoa(String.fromCharCode(...bytes))
    .replaceAll('+', '-')
    .replaceAll('/', '_')
    .replaceAll('=', '');
