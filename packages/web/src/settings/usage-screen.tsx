import type { Usage } from '@sibyl/client';
import { useOracle, useResource } from '@sibyl/client/react';
import { useCallback, useState } from 'react';
import { Chart } from '../actions/chart.js';
import { formatCost } from '../i18n/format.js';
import { formatNumber, getLanguage, t } from '../i18n/i18n.js';
import { toHash } from '../page/router.js';
import { Empty, Failure, PageHead } from './parts.js';

const periods = [7, 30, 90, 365] as const;

/** Turns, tokens and cost: one number first, then the days, then where it went. */
export function UsageScreen() {
  const client = useOracle();
  const [days, setDays] = useState<number>(30);
  const load = useCallback((signal: AbortSignal) => client.usage({ days, signal }), [client, days]);
  const { value, error, refresh } = useResource(load);
  return (
    <>
      <PageHead title={t('chat.nav.usage')} lede={t('settings.usage.lede')}>
        <select
          className="input"
          aria-label={t('settings.usage.period')}
          value={days}
          onChange={({ target }) => setDays(Number(target.value))}
        >
          {periods.map((each) => (
            <option key={each} value={each}>
              {t('settings.usage.days', { count: each })}
            </option>
          ))}
        </select>
      </PageHead>
      <Failure error={error} onRetry={refresh} />
      {value && <Totals usage={value} />}
      {value && value.days.length > 0 && <DayChart usage={value} days={days} />}
      {value && value.sessions.length > 0 && <SessionTable usage={value} />}
      {value && value.days.length === 0 && (
        <Empty title={t('settings.usage.none')} hint={t('settings.usage.none.hint')} />
      )}
    </>
  );
}

const formatCompact = (value: number): string =>
  new Intl.NumberFormat(getLanguage(), { notation: 'compact', maximumFractionDigits: 1 }).format(
    value,
  );

function Totals({ usage: { total } }: { readonly usage: Usage }) {
  const { turns, inputTokens, outputTokens, cachedTokens, cost } = total;
  return (
    <dl className="card stats">
      {cost !== undefined && (
        <div>
          <dt>{t('settings.usage.cost')}</dt>
          <dd>{formatCost(cost)}</dd>
        </div>
      )}
      <div>
        <dt>{t('settings.usage.answers')}</dt>
        <dd>{formatNumber(turns)}</dd>
      </div>
      <div>
        <dt>{t('settings.usage.tokens')}</dt>
        <dd>{formatCompact(inputTokens + outputTokens)}</dd>
        <dd>
          {t('settings.usage.inOut', {
            in: formatCompact(inputTokens),
            out: formatCompact(outputTokens),
          })}
        </dd>
      </div>
      <div>
        <dt>{t('settings.usage.cached')}</dt>
        <dd>{formatCompact(cachedTokens)}</dd>
        <dd>{t('settings.usage.cached.hint')}</dd>
      </div>
      {cost === undefined && (
        <div>
          <dt>{t('settings.usage.cost')}</dt>
          <dd>–</dd>
          <dd>{t('settings.usage.noPrices')}</dd>
        </div>
      )}
    </dl>
  );
}

/** Costs of a day can be tiny. */
const formatFraction = (value: number): string =>
  new Intl.NumberFormat(getLanguage(), { maximumSignificantDigits: 3 }).format(value);

const DAY_MS = 86_400_000;

/** One bar for each day; cost where the oracle has prices, otherwise tokens. */
function DayChart({ usage, days }: { readonly usage: Usage; readonly days: number }) {
  const hasCost = usage.total.cost !== undefined;
  const byDay = new Map(
    usage.days.map((each) => [
      each.day,
      hasCost ? (each.cost ?? 0) : each.inputTokens + each.outputTokens,
    ]),
  );
  const first = Date.parse(usage.since);
  const points = Array.from({ length: days }, (_, i) => {
    const time = first + i * DAY_MS;
    const value = byDay.get(new Date(time).toISOString().slice(0, 10)) ?? 0;
    return { label: formatDay(time), value };
  });
  const format = hasCost ? formatFraction : formatCompact;
  const title = t(hasCost ? 'settings.usage.costPerDay' : 'settings.usage.tokensPerDay');
  const max = format(Math.max(...points.map(({ value }) => value)));
  const label = t('settings.usage.chart', { label: title, count: usage.days.length, max });
  return <Chart kind="bar" unit="" {...{ title, points, format, label }} />;
}

const formatDay = (time: number): string =>
  new Intl.DateTimeFormat(getLanguage(), {
    month: 'short',
    day: 'numeric',
    timeZone: 'UTC',
  }).format(time);

function SessionTable({ usage: { sessions } }: { readonly usage: Usage }) {
  return (
    <div className="block">
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: scrollable by keyboard. */}
      <section className="table-wrap" tabIndex={0} aria-label={t('settings.usage.where')}>
        <table className="table">
          <thead>
            <tr>
              <th>{t('settings.conversation')}</th>
              <th className="num">{t('settings.usage.answers')}</th>
              <th className="num">{t('settings.usage.tokens')}</th>
              <th className="num">{t('settings.usage.cost')}</th>
            </tr>
          </thead>
          <tbody>
            {sessions.map(({ sessionId, title, turns, inputTokens, outputTokens, cost }) => (
              <tr key={sessionId}>
                <td dir="auto">
                  {title === undefined ? (
                    <span className="quiet">{t('settings.usage.deleted')}</span>
                  ) : (
                    <a href={toHash({ name: 'conversation', sessionId })}>{title}</a>
                  )}
                </td>
                <td className="num">{formatNumber(turns)}</td>
                <td className="num">{formatNumber(inputTokens + outputTokens)}</td>
                <td className="num">{cost === undefined ? '–' : formatCost(cost)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </section>
    </div>
  );
}
