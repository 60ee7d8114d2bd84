import type { ModelsConfig } from '../../../config/models-config.js';
import type { Model } from '../model.js';
import { ModelFault } from '../model-fault.js';

/** The model of a provider, with its retries and timeouts. */
export function createProviderModel(id: string, _config: ModelsConfig): Model {
  const [provider = ''] = id.split('/');
  return {
    id,
    label: id.slice(provider.length + 1),
    provider,
    vision: true,
    tools: true,
    stream: () => {
      throw new ModelFault('No provider can be reached yet.', { kind: 'server', retryable: false });
    },
  };
}
