import type { ModelList } from '@sibyl/client';
import { useOracle } from '@sibyl/client/react';
import { useEffect, useState } from 'react';
import { t } from '../i18n/i18n.js';
import { Icon } from '../ui/icon.js';
import { Menu } from '../ui/menu.js';

/** Selects the model; hidden if the oracle lists none. */
export function ModelChoice() {
  const client = useOracle();
  const [list, setList] = useState<ModelList>();
  const [model, setModel] = useState(readChosenModel);
  useEffect(() => {
    client.models.list().then(setList, () => undefined);
  }, [client]);
  if (!list || list.models.length === 0) return null;
  const chosen = list.models.find(({ id }) => id === model) ? model : list.default;
  const choose = (id: string) => {
    storeChosenModel(id === list.default ? undefined : id);
    setModel(id);
  };
  const label = list.models.find(({ id }) => id === chosen)?.label ?? chosen ?? '';
  return (
    <Menu
      className="btn btn-s pick"
      label={t('chat.model', { model: label })}
      groups={[
        list.models.map(({ id, label: name, vision, provider }) => ({
          label: name,
          hint: t(vision ? 'chat.model.vision' : 'chat.model.text', { provider }),
          isChecked: id === chosen,
          run: () => choose(id),
        })),
      ]}
    >
      <span className="clip">{label}</span> <Icon name="chev" />
    </Menu>
  );
}

const KEY = 'sibyl-model';

/** Undefined means the oracle's default model. */
export const readChosenModel = (): string | undefined => localStorage.getItem(KEY) ?? undefined;

function storeChosenModel(id: string | undefined): void {
  if (id === undefined) localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, id);
}
