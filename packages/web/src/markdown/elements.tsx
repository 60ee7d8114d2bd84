import {
  Children,
  isValidElement,
  type ReactElement,
  type ReactNode,
  useRef,
  useState,
} from 'react';
import { t } from '../i18n/i18n.js';
import { copyText } from '../ui/copy-button.js';
import { Icon } from '../ui/icon.js';
import { showToast } from '../ui/toasts.js';

/** Loading an image from an address of the model's choice sends data to that server: the user decides. */
export function AskedImage({ src, alt }: { readonly src: string; readonly alt: string }) {
  const [isAllowed, setAllowed] = useState(false);
  const [isBroken, setBroken] = useState(false);
  const host = parseHost(src);
  if (isAllowed && !isBroken) {
    return (
      <img
        className="shown-image"
        src={src}
        alt={alt}
        referrerPolicy="no-referrer"
        onError={() => setBroken(true)}
      />
    );
  }
  return (
    <span className="asked-image">
      <a href={src} target="_blank" rel="noreferrer noopener nofollow">
        {alt || t('chat.image')}
      </a>
      {isBroken ? (
        <span className="small is-fault">{t('chat.image.broken')}</span>
      ) : (
        host && (
          <button
            type="button"
            className="btn btn-s"
            title={t('chat.image.why')}
            onClick={() => setAllowed(true)}
          >
            <Icon name="eye" />
            <bdi>{t('chat.image.load', { host })}</bdi>
          </button>
        )
      )}
    </span>
  );
}

function parseHost(src: string): string | undefined {
  if (!URL.canParse(src)) return undefined;
  const { protocol, host } = new URL(src);
  return protocol === 'https:' ? host : undefined;
}

/** A table that scrolls and can be copied for a spreadsheet. */
export function Table({ children }: { readonly children?: ReactNode }) {
  const table = useRef<HTMLTableElement>(null);
  const copy = async () => {
    if (!table.current) return;
    const isCopied = await copyText(toCsv(readCells(table.current)));
    if (isCopied) showToast({ text: t('chat.table.copied') });
  };
  return (
    <div className="block">
      <div className="block-head">
        <span className="grow">{t('chat.table.rows', { count: countRows(children) })}</span>
        {navigator.clipboard && (
          <button type="button" className="btn btn-quiet btn-s" onClick={() => void copy()}>
            <Icon name="copy" />
            <bdi>{t('chat.table.copy')}</bdi>
          </button>
        )}
      </div>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keyboard. */}
      <section className="table-wrap" tabIndex={0} aria-label={t('chat.table')}>
        <table ref={table} className="table">
          {children}
        </table>
      </section>
    </div>
  );
}

/** The rows of all bodies among the parts of a table. */
const countRows = (parts: ReactNode): number =>
  Children.toArray(parts).filter(isElement).flatMap(listRows).length;

const isElement = (part: ReactNode): part is ReactElement<{ children?: ReactNode }> =>
  isValidElement(part);

const listRows = ({ type, props }: ReactElement<{ children?: ReactNode }>) =>
  type === 'tbody' ? Children.toArray(props.children).filter(isElement) : [];

const readCells = ({ rows }: HTMLTableElement): string[][] =>
  [...rows].map(({ cells }) => [...cells].map((cell) => cell.innerText.trim()));

/** RFC 4180; a leading sign that a spreadsheet would run as a formula is defused. */
export const toCsv = (rows: readonly (readonly string[])[]): string =>
  rows.map((row) => row.map(toCsvCell).join(',')).join('\r\n');

function toCsvCell(text: string): string {
  const isFormula = /^[=@\t\r]|^[+-](?![\d.,\s]*\d)/.test(text);
  const safe = isFormula ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** An item with a box, which its text labels; nested lists follow outside the label. */
export function TaskItem({ children }: { readonly children?: ReactNode }) {
  const parts = Children.toArray(children);
  const isList = (part: ReactNode): boolean =>
    isValidElement(part) && ['ul', 'ol'].includes(String((part as ReactElement).type));
  return (
    <li className="task-list-item">
      {/* biome-ignore lint/a11y/noLabelWithoutControl: the box is one of the parts. */}
      <label>{parts.filter((part) => !isList(part))}</label>
      {parts.filter(isList)}
    </li>
  );
}
