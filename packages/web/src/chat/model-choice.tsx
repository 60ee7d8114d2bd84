import type { ModelList } from '@sibyl/client';
import { useOracle } from '@sibyl/client/react';
import { useEffect, useState } from 'react';
import { chooseModel, chosenModel } from './chosen-model.js';

/** Which model answers; absent where there is nothing to choose. */
export function ModelChoice() {
  const client = useOracle();
  const [list, setList] = useState<ModelList>();
  const [model, setModel] = useState(chosenModel);
  useEffect(() => {
    client.models.list().then(setList, () => undefined);
  }, [client]);
  if (!list || list.models.length === 0) return null;
  const isKnown = list.models.some(({ id }) => id === model);
  const choose = (id: string) => {
    chooseModel(id === list.default ? undefined : id);
    setModel(id);
  };
  return (
    <select
      className="model"
      aria-label="Model"
      value={isKnown ? model : list.default}
      onChange={({ target }) => choose(target.value)}
    >
      {list.models.map(({ id, label }) => (
        <option key={id} value={id}>
          {label}
        </option>
      ))}
    </select>
  );
}
