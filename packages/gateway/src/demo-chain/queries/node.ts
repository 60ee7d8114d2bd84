import { hashOf } from '../hash-of.js';
import type { ServiceAnswers } from './answers.js';

/** `cosmos.base.node.v1beta1.Service`: how the node is set up and how far it is. */
export const nodeAnswers: ServiceAnswers = {
  Config: (_, { blocks }) => ({
    minimum_gas_price: '0.025uixo',
    pruning_keep_recent: String(blocks.latest - blocks.earliest + 1),
    pruning_interval: '1',
  }),
  Status: (_, { height, blocks }) => ({
    earliest_store_height: String(blocks.earliest),
    height: String(height),
    timestamp: blocks.timeOf(height).toISOString(),
    app_hash: hashOf(`state ${height}`),
    validator_hash: hashOf('validators'),
  }),
};
