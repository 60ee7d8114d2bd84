import { type FormEvent, type ReactNode, useCallback, useEffect, useState } from 'react';
import { explainError } from '../i18n/explain-error.js';
import { formatDateTime, formatWhen } from '../i18n/format.js';
import { getLanguage, type TextKey, t } from '../i18n/i18n.js';

export interface Column<Row> {
  readonly title: string;
  readonly isNumber?: boolean;
  readonly cell: (row: Row) => ReactNode;
}

interface DataTableProps<Row> {
  readonly title: string;
  readonly rows: readonly Row[];
  readonly columns: readonly Column<Row>[];
  readonly rowKey: (row: Row) => string;
  /** Shown instead of an empty table. */
  readonly empty: string;
  readonly aside?: ReactNode;
  /** Loads more rows; undefined if there are none. */
  readonly onMore?: (() => void) | undefined;
  /** The most rows that can be loaded. */
  readonly max?: number;
}

/** A card with a table that scrolls on narrow screens. */
export function DataTable<Row>(props: DataTableProps<Row>) {
  const { title, rows, columns, rowKey, empty, aside, onMore, max } = props;
  return (
    <section className="card">
      <div className="card-head">
        <h2 className="title-2 grow">{title}</h2>
        {aside}
      </div>
      {rows.length === 0 ? (
        <p className="empty">{empty}</p>
      ) : (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keyboard.
        <section className="table-wrap" tabIndex={0} aria-label={title}>
          <table className="table">
            <thead>
              <tr>
                {columns.map((column) => (
                  <th key={column.title} className={column.isNumber ? 'num' : undefined}>
                    {column.title}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {rows.map((row) => (
                <tr key={rowKey(row)}>
                  {columns.map((column) => (
                    <td key={column.title} className={column.isNumber ? 'num' : undefined}>
                      {column.cell(row)}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </section>
      )}
      {max !== undefined && rows.length >= max && (
        <p className="approval-foot small quiet">{t('operator.first', { count: max })}</p>
      )}
      {onMore && (
        <div className="approval-foot">
          <button type="button" className="btn btn-s" onClick={onMore}>
            {t('operator.more')}
          </button>
        </div>
      )}
    </section>
  );
}

/** How many rows to load, at most `max`; twice as many with each `more`. */
export function useLimit(first: number, max: number) {
  const [limit, setLimit] = useState(first);
  const more = () => setLimit(Math.min(2 * limit, max));
  /** `more`, if there may be more than `count` rows. */
  const findMore = (count: number) => (count >= limit && limit < max ? more : undefined);
  return { limit, findMore };
}

interface FilterProps {
  readonly section: 'turns' | 'users';
  /** The parameters in the address. */
  readonly query: string;
  readonly children?: ReactNode;
}

/** Chooses what a list shows; the address keeps it. */
export function Filter({ section, query, children }: FilterProps) {
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const fields = [...new FormData(event.currentTarget)].map(([name, value]) => [
      name,
      String(value).trim(),
    ]);
    const chosen = new URLSearchParams(fields.filter(([, value]) => value));
    location.hash = `${section}?${chosen}`;
  };
  return (
    <search>
      <form className="line filter" onSubmit={submit}>
        <label className="field grow">
          <span>{t('operator.user')}</span>
          <input
            className="input"
            name="user"
            dir="ltr"
            placeholder="did:key:…"
            autoComplete="off"
            spellCheck={false}
            defaultValue={new URLSearchParams(query).get('user') ?? ''}
          />
        </label>
        {children}
        <button type="submit" className="btn">
          {t('operator.filter')}
        </button>
        {query && (
          <a className="btn btn-quiet" href={`#${section}`}>
            {t('operator.filter.none')}
          </a>
        )}
      </form>
    </search>
  );
}

/** An identity that leads to its turns. */
export const UserLink = ({ did }: { readonly did: string }) => (
  <a href={`#turns?${new URLSearchParams({ user: did })}`}>
    <Code text={did} short={shortenDid(did)} />
  </a>
);

/** When something happened, exactly when pointed at. */
export const When = ({ at }: { readonly at: string }) => (
  <time className="when" dateTime={at} title={formatDateTime(at)}>
    {formatWhen(at)}
  </time>
);

/** An identity, in full when pointed at. */
export const Code = ({ text, short }: { readonly text: string; readonly short?: string }) => (
  <code title={text} dir="ltr">
    {short ?? text}
  </code>
);

type Tone = 'good' | 'warning' | 'fault' | 'accent';

export const Badge = ({
  tone,
  children,
}: {
  readonly tone?: Tone;
  readonly children: ReactNode;
}) => <span className={tone ? `badge is-${tone}` : 'badge'}>{children}</span>;

/** The end of a DID, which differs; the whole is in a title. */
export function shortenDid(did: string): string {
  const id = did.replace(/^did:key:/, '');
  return id.length > 16 ? `${id.slice(0, 6)}…${id.slice(-6)}` : id;
}

const formatUnit = (value: number, unit: string, maximumFractionDigits = 0): string =>
  new Intl.NumberFormat(getLanguage(), {
    style: 'unit',
    unit,
    unitDisplay: 'short',
    maximumFractionDigits,
  }).format(value);

export function formatMs(ms: number): string {
  if (ms < 1000) return formatUnit(ms, 'millisecond');
  return ms < 60_000 ? formatUnit(ms / 1000, 'second', 1) : formatUnit(ms / 60_000, 'minute');
}

export const formatCount = (count: number): string =>
  new Intl.NumberFormat(getLanguage(), { notation: 'compact' }).format(count);

/** Without a currency: the prices have the one that the operator chose. */
export const formatCost = (cost: number | undefined): string =>
  cost === undefined
    ? '–'
    : new Intl.NumberFormat(getLanguage(), {
        minimumFractionDigits: 2,
        maximumFractionDigits: 4,
      }).format(cost);

export const formatShare = (share: number): string =>
  new Intl.NumberFormat(getLanguage(), { style: 'percent', maximumFractionDigits: 1 }).format(
    share,
  );

const CAUSES: Readonly<Record<string, TextKey>> = {
  dns: 'operator.cause.dns',
  connection_refused: 'operator.cause.connection_refused',
  connection_lost: 'operator.cause.connection_lost',
  unreachable: 'operator.cause.unreachable',
  tls: 'operator.cause.tls',
  timeout: 'operator.cause.timeout',
  wrong_key: 'operator.cause.wrong_key',
  no_credit: 'operator.cause.no_credit',
  rate_limit: 'operator.cause.rate_limit',
  provider_error: 'operator.cause.provider_error',
  request_rejected: 'operator.cause.request_rejected',
  host_lost: 'operator.cause.host_lost',
};

/** Why something failed, in the language of the operator; an unknown cause as the server describes it. */
export function describeCause(cause: string, text = cause): string {
  const key = CAUSES[cause];
  return key ? t(key) : text;
}

/** For most lists; charts change slowly. */
const INTERVAL_MS = 5_000;

interface Polled<T> {
  readonly value: T | undefined;
  readonly error: string | undefined;
  readonly reload: () => void;
}

/** Reads something now and every few seconds while the page is visible. `read` must be stable. */
export function usePolled<T>(
  read: (signal: AbortSignal) => Promise<T>,
  intervalMs = INTERVAL_MS,
): Polled<T> {
  const [value, setValue] = useState<T>();
  const [error, setError] = useState<string>();
  const [round, setRound] = useState(0);
  const reload = useCallback(() => setRound((last) => last + 1), []);
  useEffect(() => {
    const stop = new AbortController();
    const load = async () => {
      if (document.hidden) return;
      try {
        setValue(await read(stop.signal));
        setError(undefined);
      } catch (cause) {
        if (!stop.signal.aborted) setError(explainError(cause as Error));
      }
    };
    void load();
    const timer = setInterval(load, intervalMs);
    return () => {
      stop.abort();
      clearInterval(timer);
    };
  }, [read, round, intervalMs]);
  return { value, error, reload };
}

interface LoadedProps<T> {
  readonly polled: Polled<T>;
  readonly children: (value: T) => ReactNode;
}

/** Shows the last known value, and says so if it cannot be read again. */
export function Loaded<T>({ polled: { value, error }, children }: LoadedProps<T>) {
  return (
    <>
      {error && (
        <p className="notice is-fault" role="alert">
          {t('operator.unreadable', { error })}
        </p>
      )}
      {value === undefined
        ? !error && <p className="empty">{t('chat.loading')}</p>
        : children(value)}
    </>
  );
}
