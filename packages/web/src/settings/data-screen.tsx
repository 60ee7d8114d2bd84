import { type Erased, type ImportJob, OracleClientError, type OwnData } from '@sibyl/client';
import { useOracle } from '@sibyl/client/react';
import { type ChangeEvent, useEffect, useRef, useState } from 'react';
import { useLeaveWarning } from '../chat/uploads.js';
import { formatBytes } from '../i18n/format.js';
import { t } from '../i18n/i18n.js';
import { usePage } from '../page/page-context.js';
import { readText, storeText } from '../page/stored-value.js';
import { Icon } from '../ui/icon.js';
import { Confirm, Failure, Notice, PageHead, saveFile, useAction } from './parts.js';

/** Everything about the user: export, import, erase. */
export function DataScreen() {
  const { card } = usePage();
  return (
    <>
      <PageHead title={t('chat.nav.data')} lede={t('settings.data.lede', { name: card.name })} />
      <section className="card rows">
        <Export />
        <Import />
        <Erase />
      </section>
    </>
  );
}

function Export() {
  const { me } = useOracle();
  const [bytes, setBytes] = useState(0);
  const { isBusy, error, run } = useAction();
  const download = () =>
    run(async () => {
      const response = await me.export();
      const parts: Uint8Array<ArrayBuffer>[] = [];
      let total = 0;
      for await (const part of readChunks(response)) {
        parts.push(part);
        total += part.length;
        setBytes(total);
      }
      const name = `sibyl-export-${new Date().toISOString().slice(0, 10)}.zip`;
      saveFile(name, new Blob(parts), 'application/zip');
    });
  return (
    <div className="row row-wrap">
      <Icon name="save" />
      <div className="grow">
        <b>{t('settings.data.export')}</b>
        <div className="small quiet" role="status">
          {isBusy
            ? t('settings.data.exporting', { size: formatBytes(bytes) })
            : t('settings.data.export.hint')}
        </div>
      </div>
      <button type="button" className="btn btn-s" disabled={isBusy} onClick={download}>
        {t('settings.data.export.button')}
      </button>
      {error && (
        <div className="row-below">
          <Failure error={error} onRetry={download} />
        </div>
      )}
    </div>
  );
}

async function* readChunks(response: Response): AsyncGenerator<Uint8Array<ArrayBuffer>> {
  const reader = response.body?.getReader();
  while (reader) {
    const { done, value } = await reader.read().catch(throwBroken);
    if (done) return;
    yield value;
  }
}

function throwBroken(cause: unknown): never {
  const message = 'The connection broke before the file was complete';
  throw new OracleClientError('network_error', message, { cause });
}

const POLL_MS = 1000;

function Import() {
  const { me, did } = useOracle();
  const input = useRef<HTMLInputElement>(null);
  const { job, isRunning, follow } = useImportJob(me, `sibyl-import:${did}`);
  const { isBusy, error, run } = useAction();
  useLeaveWarning(isBusy);
  const start = ({ target }: ChangeEvent<HTMLInputElement>) => {
    const [file] = target.files ?? [];
    target.value = '';
    if (file) void run(async () => follow(await me.import(file)));
  };
  const isWorking = isBusy || isRunning;
  return (
    <div className="row row-wrap">
      <Icon name="plus" />
      <div className="grow">
        <b>{t('settings.data.import')}</b>
        <div className="small quiet" role="status">
          {t(isWorking ? 'settings.data.importing' : 'settings.data.import.hint')}
        </div>
        <input ref={input} hidden type="file" data-testid="import" onChange={start} />
      </div>
      <button
        type="button"
        className="btn btn-s"
        disabled={isWorking}
        onClick={() => input.current?.click()}
      >
        {t('settings.data.import.button')}
      </button>
      {(isWorking || job || error) && (
        <div className="row-below">
          {isWorking ? <Progress job={job} /> : job && <Result job={job} />}
          <Failure error={error} />
        </div>
      )}
    </div>
  );
}

/** The import that runs, also one that was started before this screen was left; then its result. `key`: where its id is stored. */
function useImportJob(me: OwnData, key: string) {
  const [job, setJob] = useState<ImportJob>();
  const [id, setId] = useState(() => readText(key));
  const follow = (started: ImportJob) => {
    storeText(key, started.id);
    setJob(started);
    setId(started.id);
  };
  useEffect(() => {
    if (id === null) return;
    let isCurrent = true;
    const show = (found: ImportJob | undefined) => {
      if (!isCurrent) return;
      setJob(found);
      if (found?.status === 'running') return;
      storeText(key, null);
      setId(null);
    };
    const poll = () =>
      me.findImport(id).then(show, ({ status }: OracleClientError) => {
        // Other polls that fail are repeated by the next one.
        if (status === 404) show(undefined);
      });
    void poll();
    const timer = setInterval(poll, POLL_MS);
    return () => {
      isCurrent = false;
      clearInterval(timer);
    };
  }, [me, key, id]);
  return { job, isRunning: id !== null, follow };
}

/** Empty until the archive has arrived. */
function Progress({ job }: { readonly job: ImportJob | undefined }) {
  const { bytes, totalBytes } = job?.status === 'running' ? job : { bytes: 0, totalBytes: 1 };
  return (
    <progress
      className="bar"
      max={Math.max(totalBytes, 1)}
      value={bytes}
      aria-label={t('settings.data.importing')}
    />
  );
}

function Result({ job }: { readonly job: ImportJob }) {
  const { status, stored, present, error } = job;
  if (status === 'failed') {
    return (
      <Notice kind="fault">
        {t('settings.data.importFailed')} {error}
      </Notice>
    );
  }
  const skipped = sumRows(job.skipped ?? {});
  const refused = job.refused - skipped;
  return (
    <Notice kind="good">
      {t('settings.data.imported', { count: sumRows(stored) })}{' '}
      {t('settings.data.present', { count: present })}{' '}
      {refused > 0 && t('settings.data.refused', { count: refused })}{' '}
      {skipped > 0 && t('settings.data.skipped', { count: skipped })}
    </Notice>
  );
}

const sumRows = (tables: Readonly<Record<string, number>>) =>
  Object.values(tables).reduce((sum, rows) => sum + rows, 0);

function Erase() {
  const { me } = useOracle();
  const { card } = usePage();
  const [isAsking, setAsking] = useState(false);
  const [typed, setTyped] = useState('');
  const [erased, setErased] = useState<Erased>();
  const word = t('settings.data.erase.word');
  return (
    <div className="row row-wrap">
      <Icon name="trash" />
      <div className="grow">
        <b>{t('settings.data.erase')}</b>
        <div className="small quiet">{t('settings.data.erase.hint')}</div>
      </div>
      <button type="button" className="btn btn-s btn-danger" onClick={() => setAsking(true)}>
        {t('settings.data.erase.button')}
      </button>
      {isAsking && (
        <Confirm
          title={t('settings.data.erase.title', { name: card.name })}
          text={t('settings.data.erase.text')}
          confirm={t('settings.data.erase.confirm')}
          isDisabled={typed.trim().toLocaleLowerCase() !== word.toLocaleLowerCase()}
          onClose={() => {
            setAsking(false);
            setTyped('');
          }}
          onConfirm={async () => setErased(await me.erase())}
        >
          <label className="field">
            <span>{t('settings.data.erase.type', { word })}</span>
            <input
              className="input"
              autoComplete="off"
              value={typed}
              onChange={({ target }) => setTyped(target.value)}
            />
          </label>
        </Confirm>
      )}
      {erased && (
        <div className="row-below">
          <Kept erased={erased} />
        </div>
      )}
    </div>
  );
}

/** What was erased, and what the operator has to keep. */
function Kept({ erased: { rows, kept } }: { readonly erased: Erased }) {
  const held = kept.filter((each) => each.rows > 0);
  return (
    <Notice kind="good">
      <p>{t('settings.data.erased', { count: rows })}</p>
      {held.length > 0 && (
        <>
          <p>{t('settings.data.kept')}</p>
          <ul className="bullets">
            {held.map((each) => (
              <li key={each.table}>
                {t('settings.data.keptRows', { count: each.rows })} {each.reason}
              </li>
            ))}
          </ul>
        </>
      )}
      <div className="actions">
        <button
          type="button"
          className="btn btn-s"
          onClick={() => {
            location.hash = '#/';
            location.reload();
          }}
        >
          {t('settings.data.startAgain')}
        </button>
      </div>
    </Notice>
  );
}
