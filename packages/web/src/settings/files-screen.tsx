import type { FileInfo } from '@sibyl/client';
import { useOracle, useResource } from '@sibyl/client/react';
import { type ChangeEvent, useCallback, useEffect, useRef, useState } from 'react';
import { formatBytes, formatWhen } from '../i18n/format.js';
import { type TextKey, t } from '../i18n/i18n.js';
import { usePage } from '../page/page-context.js';
import { Icon } from '../ui/icon.js';
import { Menu } from '../ui/menu.js';
import { showToast } from '../ui/toasts.js';
import { Confirm, Empty, Failure, PageHead, saveFile, useAction } from './parts.js';

const PAGE_SIZE = 100;
const REFRESH_MS = 3000;

/** The user's files at the oracle, and how much room they take. */
export function FilesScreen() {
  const { card } = usePage();
  const { files: routes } = useOracle();
  const [limit, setLimit] = useState(PAGE_SIZE);
  const load = useCallback(
    async (signal: AbortSignal) => {
      const offsets = Array.from({ length: limit / PAGE_SIZE }, (_, i) => i * PAGE_SIZE);
      const pages = await Promise.all(
        offsets.map((offset) => routes.list({ offset, limit: PAGE_SIZE, signal })),
      );
      const [first] = pages;
      return first && { ...first, files: pages.flatMap(({ files }) => files) };
    },
    [routes, limit],
  );
  const { value, error, refresh } = useResource(load);
  useRefreshWhile(value?.files.some(({ text }) => text.status === 'pending') ?? false, refresh);
  const files = value?.files ?? [];
  return (
    <>
      <PageHead title={t('chat.nav.files')} lede={t('settings.files.lede', { name: card.name })}>
        <Upload onUploaded={refresh} />
      </PageHead>
      <Failure error={error} onRetry={refresh} />
      {value && <Quota used={value.usedBytes} max={value.maxBytes} />}
      {files.length > 0 && <FileTable files={files} onChange={refresh} />}
      {value && files.length === 0 && (
        <Empty title={t('settings.files.none')} hint={t('settings.files.none.hint')} />
      )}
      {value && value.total > files.length && (
        <div className="actions">
          <button type="button" className="btn btn-s" onClick={() => setLimit(limit + PAGE_SIZE)}>
            {t('settings.more')}
          </button>
        </div>
      )}
    </>
  );
}

function useRefreshWhile(isActive: boolean, refresh: () => Promise<void>): void {
  useEffect(() => {
    if (!isActive) return;
    const timer = setInterval(() => void refresh(), REFRESH_MS);
    return () => clearInterval(timer);
  }, [isActive, refresh]);
}

function Upload({ onUploaded }: { readonly onUploaded: () => Promise<void> }) {
  const { files } = useOracle();
  const input = useRef<HTMLInputElement>(null);
  const { isBusy, error, run } = useAction();
  const upload = ({ target }: ChangeEvent<HTMLInputElement>) => {
    const chosen = [...(target.files ?? [])];
    target.value = '';
    void run(async () => {
      for (const file of chosen) await files.upload(file, { name: file.name });
    }).then(onUploaded);
  };
  return (
    <div className="stack stack-2">
      <input ref={input} hidden type="file" multiple data-testid="upload" onChange={upload} />
      <button
        type="button"
        className="btn btn-primary"
        disabled={isBusy}
        onClick={() => input.current?.click()}
      >
        <Icon name="plus" />
        {isBusy ? t('settings.files.uploading') : t('settings.files.upload')}
      </button>
      <Failure error={error} />
    </div>
  );
}

function Quota({ used, max }: { readonly used: number; readonly max: number }) {
  const text = t('settings.files.quota', { used: formatBytes(used), max: formatBytes(max) });
  return (
    <div className="stack stack-2">
      <progress className="bar" max={max} value={used} aria-label={text} />
      <p className="small quiet num">{text}</p>
    </div>
  );
}

interface FileTableProps {
  readonly files: readonly FileInfo[];
  readonly onChange: () => Promise<void>;
}

function FileTable({ files, onChange }: FileTableProps) {
  const [removed, setRemoved] = useState<FileInfo>();
  const { files: routes } = useOracle();
  return (
    <div className="block">
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: scrollable by keyboard. */}
      <section className="table-wrap" tabIndex={0} aria-label={t('chat.nav.files')}>
        <table className="table">
          <thead>
            <tr>
              <th>{t('settings.add.name')}</th>
              <th className="wide-only">{t('settings.files.state')}</th>
              <th className="num wide-only">{t('settings.files.size')}</th>
              <th className="wide-only">{t('settings.files.added')}</th>
              <th>
                <span className="vh">{t('settings.actions')}</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {files.map((file) => (
              <FileRow key={file.fileId} file={file} onRemove={() => setRemoved(file)} />
            ))}
          </tbody>
        </table>
      </section>
      {removed && (
        <Confirm
          title={t('settings.delete.title', { name: removed.name })}
          text={t('settings.files.delete.text')}
          confirm={t('chat.delete')}
          onClose={() => setRemoved(undefined)}
          onConfirm={async () => {
            await routes.delete(removed.fileId);
            await onChange();
          }}
        />
      )}
    </div>
  );
}

function FileRow({ file, onRemove }: { readonly file: FileInfo; readonly onRemove: () => void }) {
  const { files } = useOracle();
  const { run } = useAction();
  const download = () =>
    run(async () => {
      const response = await files.download(file.fileId);
      saveFile(file.name, await response.blob(), file.mediaType);
    }).then((isDone) => isDone || showToast({ text: t('settings.files.downloadFailed') }));
  return (
    <tr>
      <td>
        <span className="line nowrap">
          <Icon name="file" />
          <span>
            <bdi>{file.name}</bdi>
            <span className="narrow-only">
              <State file={file} />
            </span>
          </span>
        </span>
      </td>
      <td className="wide-only">
        <State file={file} />
      </td>
      <td className="num wide-only">{formatBytes(file.size)}</td>
      <td className="wide-only sentence">{formatWhen(file.createdAt)}</td>
      <td className="num">
        <Menu
          label={t('settings.moreFor', { name: file.name })}
          groups={[
            [{ label: t('settings.files.download'), icon: 'save', run: () => void download() }],
            [{ label: t('chat.delete'), icon: 'trash', isDanger: true, run: onRemove }],
          ]}
        >
          <Icon name="more" />
        </Menu>
      </td>
    </tr>
  );
}

const states = {
  ready: ['settings.files.ready', 'is-good'],
  pending: ['settings.files.pending', 'is-accent'],
  none: ['settings.files.noText', ''],
  failed: ['settings.files.failed', 'is-fault'],
} as const satisfies Record<FileInfo['text']['status'], readonly [TextKey, string]>;

function State({ file: { text } }: { readonly file: FileInfo }) {
  const [label, color] = states[text.status];
  return (
    <span className={`badge ${color}`} title={text.error}>
      {t(label)}
    </span>
  );
}
