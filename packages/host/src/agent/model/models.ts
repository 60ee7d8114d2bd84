import type { ModelList } from '@sibyl/protocol';
import { OFFLINE } from '../../config/model-providers.js';
import type { ModelsConfig } from '../../config/models-config.js';
import type { Model, ModelRole } from './model.js';
import type { ModelFault } from './model-fault.js';
import { createOfflineModel } from './offline/offline-model.js';
import { createProviderModel } from './providers/provider-model.js';

/** The models this host may answer with. */
export interface Models {
  get(role: ModelRole): Model;
  /** The model a message asks for, if it is one of the listed. */
  find(id: string): Model | undefined;
  /** As `GET /models` shows them (contract B7). */
  list(): ModelList;
}

export interface ModelsOptions {
  /** Told of every fault after which a model is asked again. */
  readonly onRetry?: (modelId: string, fault: ModelFault) => void;
}

/** Makes the configured models; nothing of a provider is loaded or called before its first use. */
export function createModels(config: ModelsConfig, options: ModelsOptions = {}): Models {
  const models = new Map(config.choices.map((id) => [id, createModel(id, config, options)]));
  const get = (id: string) => models.get(id) ?? createModel(id, config, options);
  const byRole: Record<ModelRole, Model> = {
    main: get(config.main),
    subagent: get(config.main),
    utility: get(config.small),
  };
  const list = listOf([...models.values()], config.main);
  return { get: (role) => byRole[role], find: (id) => models.get(id), list: () => list };
}

function createModel(id: string, config: ModelsConfig, { onRetry }: ModelsOptions): Model {
  if (id === OFFLINE) return createOfflineModel();
  return createProviderModel(id, config, { onRetry: (fault) => onRetry?.(id, fault) });
}

function listOf(models: readonly Model[], main: string): ModelList {
  return {
    models: models.map(({ id, label, provider, vision, tools }) => ({
      id,
      label,
      provider,
      isDefault: id === main,
      vision,
      tools,
    })),
    default: main,
  };
}
