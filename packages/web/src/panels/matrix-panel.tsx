import type { Attachment, MatrixLink, MatrixSession } from '@sibyl/client';
import { useOracle, useResource } from '@sibyl/client/react';
import { type FormEvent, useCallback, useState } from 'react';
import { flushSync } from 'react-dom';
import { useFormDraft } from '../chat/drafts.js';
import { formatDate } from '../i18n/format.js';
import { t } from '../i18n/i18n.js';
import { usePage } from '../page/page-context.js';
import {
  Failure,
  LeaveGuard,
  PageHead,
  RevocableRow,
  Section,
  ShownOnce,
  useAction,
} from '../settings/parts.js';
import { Icon } from '../ui/icon.js';

/** Matrix: the account through which files are sent, and accounts that the oracle answers as the user. */
export function MatrixPanel() {
  const { settings, card, signer } = usePage();
  return (
    <>
      <PageHead
        title={t('chat.nav.matrix')}
        lede={t('settings.matrix.lede', { name: card.name })}
      />
      <Section title={t('settings.matrix.files')}>
        <TokenForm homeServer={settings.matrixBaseUrl} did={signer.did} />
      </Section>
      <Accounts />
    </>
  );
}

interface TokenFormProps {
  readonly homeServer: string | undefined;
  readonly did: string;
}

function TokenForm({ homeServer, did }: TokenFormProps) {
  const [token, setToken] = useState('');
  const store = (accessToken: string | undefined) => {
    storeMatrixToken(did, accessToken);
    location.reload();
  };
  const save = (event: FormEvent) => {
    event.preventDefault();
    // Nothing is lost any more, so the guard must not ask.
    flushSync(() => setToken(''));
    store(token.trim());
  };
  if (readMatrixSession(homeServer, did)) {
    return (
      <div className="card rows">
        <div className="row row-wrap">
          <Icon name="check" />
          <div className="grow">
            <b>{t('settings.matrix.connected')}</b>
            <div className="small quiet">
              <code dir="ltr">{homeServer}</code>
            </div>
          </div>
          <button type="button" className="btn btn-s" onClick={() => store(undefined)}>
            {t('settings.matrix.disconnect')}
          </button>
        </div>
      </div>
    );
  }
  return (
    <form className="card card-pad stack" onSubmit={save}>
      <LeaveGuard isActive={token !== ''} />
      <p className="quiet">{t('settings.matrix.files.text', { server: homeServer ?? '' })}</p>
      <label className="field">
        <span>{t('settings.matrix.token')}</span>
        <input
          className="input"
          required
          type="password"
          dir="ltr"
          autoComplete="off"
          value={token}
          onChange={({ target }) => setToken(target.value)}
        />
      </label>
      <div className="actions">
        <button type="submit" className="btn btn-primary">
          {t('settings.matrix.connect')}
        </button>
      </div>
    </form>
  );
}

/** Accounts that the oracle answers as the user, where it takes part in rooms. */
function Accounts() {
  const { matrix } = useOracle();
  const { card } = usePage();
  const [created, setCreated] = useState<MatrixLink>();
  const load = useCallback((signal: AbortSignal) => matrix.list({ signal }), [matrix]);
  const { value, error, refresh } = useResource(load);
  if (error?.status === 404 || error?.status === 403) return null;
  return (
    <Section
      title={t('settings.matrix.accounts')}
      hint={t('settings.matrix.accounts.hint', { name: card.name })}
    >
      <Failure error={error} onRetry={refresh} />
      {created?.code && (
        <ShownOnce
          text={t('settings.matrix.send', {
            account: created.userId,
            oracle: created.oracleUserId ?? card.name,
          })}
          values={[[created.code, t('settings.matrix.copy')]]}
          onClose={() => setCreated(undefined)}
        />
      )}
      {value && value.length > 0 && (
        <ul className="card rows">
          {value.map((each) => (
            <AccountRow key={each.userId} link={each} onChange={refresh} />
          ))}
        </ul>
      )}
      <LinkForm
        onLinked={async (link) => {
          setCreated(link);
          await refresh();
        }}
      />
    </Section>
  );
}

function LinkForm({ onLinked }: { readonly onLinked: (link: MatrixLink) => Promise<void> }) {
  const { matrix } = useOracle();
  const { values, change, clear } = useFormDraft('matrix-account', { userId: '' });
  const { userId } = values;
  const { isBusy, error, run } = useAction();
  const link = (event: FormEvent) => {
    event.preventDefault();
    void run(async () => {
      const created = await matrix.link(userId.trim());
      clear();
      await onLinked(created);
    });
  };
  return (
    <form className="card card-pad stack" onSubmit={link}>
      <label className="field">
        <span>{t('settings.matrix.account')}</span>
        <input
          className="input"
          required
          dir="ltr"
          autoComplete="off"
          autoCapitalize="none"
          placeholder="@alice:example.org"
          pattern="\s*@[^\s:]+:[^\s\/]+\s*"
          value={userId}
          onChange={({ target }) => change({ userId: target.value })}
        />
      </label>
      <Failure error={error} findLabel={() => t('settings.matrix.account')} />
      <div className="actions">
        <button type="submit" className="btn" disabled={isBusy}>
          {t('settings.matrix.link')}
        </button>
      </div>
    </form>
  );
}

interface AccountRowProps {
  readonly link: MatrixLink;
  readonly onChange: () => Promise<void>;
}

function AccountRow({ link, onChange }: AccountRowProps) {
  const { matrix } = useOracle();
  const { userId, status, expiration } = link;
  const facts = [
    t(status === 'linked' ? 'settings.matrix.linked' : 'settings.matrix.pending'),
    ...(expiration === undefined
      ? []
      : [t('settings.granted.until', { date: formatDate(expiration * 1000) })]),
  ];
  const unlink = async () => {
    await matrix.unlink(userId);
    await onChange();
  };
  return <RevocableRow icon="chat" title={userId} dir="ltr" facts={facts} onRevoke={unlink} />;
}

/** Every identity has its own account. */
const toKey = (did: string): string => `sibyl-matrix-token:${did}`;

/** Reads the user's Matrix session, which ends with the tab. */
export function readMatrixSession(
  homeServer: string | undefined,
  did: string,
): MatrixSession | undefined {
  const accessToken = sessionStorage.getItem(toKey(did));
  return homeServer && accessToken ? { homeServer, accessToken } : undefined;
}

function storeMatrixToken(did: string, accessToken: string | undefined): void {
  if (accessToken) sessionStorage.setItem(toKey(did), accessToken);
  else sessionStorage.removeItem(toKey(did));
}

/** Uploads a file with the user's rights; the oracle reads it with the same rights. */
export async function uploadFile(
  matrix: MatrixSession,
  file: File,
  signal: AbortSignal,
): Promise<Attachment> {
  const mimetype = file.type || 'application/octet-stream';
  const name = encodeURIComponent(file.name);
  const response = await fetch(`${matrix.homeServer}/_matrix/media/v3/upload?filename=${name}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${matrix.accessToken}`, 'content-type': mimetype },
    body: file,
    signal,
  });
  const reply = await response.json();
  if (!response.ok)
    throw new Error(reply.error ?? `the homeserver returned status ${response.status}`);
  return { mxcUri: reply.content_uri, filename: file.name, mimetype, size: file.size };
}
