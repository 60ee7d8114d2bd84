import { exportBrowserSeed } from '@sibyl/client/identities';
import { toWords, WORD_COUNT } from '@sibyl/client/words';
import { type FormEvent, useMemo, useState } from 'react';
import { t } from '../../i18n/i18n.js';
import { Failure, FormFoot, useAction } from '../parts.js';
import type { BackupProps } from './backup-file.js';

/** Words for paper. */
export function WordsBackup({ identity, step, onStep, onDone }: BackupProps) {
  const [words, setWords] = useState<readonly string[]>([]);
  const positions = useMemo(() => choosePositions(), []);
  const { isBusy, error, run } = useAction();
  const show = () =>
    run(async () => {
      setWords(toWords(await exportBrowserSeed(identity.did)));
      onStep('save');
    });
  const hide = () => {
    setWords([]);
    onStep('choose');
  };
  if (words.length === 0) {
    return (
      <div className="stack">
        <p>{t('settings.backup.words.intro')}</p>
        <Failure error={error} />
        <div className="actions">
          <button type="button" className="btn btn-primary" disabled={isBusy} onClick={show}>
            {t('settings.backup.words.show')}
          </button>
        </div>
      </div>
    );
  }
  if (step === 'check') {
    return (
      <WordsCheck
        words={words}
        positions={positions}
        onBack={() => onStep('save')}
        onDone={onDone}
      />
    );
  }
  return (
    <div className="stack">
      <ol className="words" dir="ltr" lang="en" aria-label={t('settings.backup.words')}>
        {words.map((word, i) => (
          <li key={i}>{word}</li>
        ))}
      </ol>
      <div className="actions">
        <button type="button" className="btn btn-primary" onClick={() => onStep('check')}>
          {t('settings.backup.words.written')}
        </button>
        <button type="button" className="btn btn-quiet" onClick={hide}>
          {t('settings.backup.words.hide')}
        </button>
        <span className="hint">{t('settings.backup.words.next')}</span>
      </div>
    </div>
  );
}

interface WordsCheckProps {
  readonly words: readonly string[];
  readonly positions: readonly number[];
  readonly onBack: () => void;
  readonly onDone: () => Promise<void>;
}

function WordsCheck({ words, positions, onBack, onDone }: WordsCheckProps) {
  const [typed, setTyped] = useState<Readonly<Record<number, string>>>({});
  const [wrong, setWrong] = useState<readonly number[]>([]);
  const { isBusy, error, run } = useAction();
  const check = async (event: FormEvent) => {
    event.preventDefault();
    const failed = positions.filter((at) => typed[at]?.trim().toLowerCase() !== words[at]);
    setWrong(failed);
    if (failed.length === 0) await run(onDone);
  };
  return (
    <form className="stack" onSubmit={check}>
      <p>{t('settings.backup.words.check')}</p>
      <div className="line top">
        {positions.map((at) => (
          <label key={at} className="field grow">
            <span>{t('settings.backup.words.nth', { number: at + 1 })}</span>
            <input
              className="input"
              required
              dir="ltr"
              lang="en"
              autoComplete="off"
              autoCapitalize="none"
              spellCheck={false}
              aria-invalid={wrong.includes(at) || undefined}
              value={typed[at] ?? ''}
              onChange={({ target }) => setTyped({ ...typed, [at]: target.value })}
            />
          </label>
        ))}
      </div>
      {wrong.length > 0 && (
        <p className="small is-fault" role="alert">
          {t('settings.backup.words.wrong', { count: wrong.length })}
        </p>
      )}
      <Failure error={error} />
      <FormFoot
        submit={t('settings.backup.words.verify')}
        isDisabled={isBusy}
        cancel={[t('settings.backup.words.again'), onBack]}
      />
    </form>
  );
}

/** Three positions that a user who wrote the words down can name, in order. */
function choosePositions(): readonly number[] {
  const chosen = new Set<number>();
  while (chosen.size < 3) {
    const [random = 0] = crypto.getRandomValues(new Uint32Array(1));
    chosen.add(random % WORD_COUNT);
  }
  return [...chosen].toSorted((a, b) => a - b);
}
