import { createHash } from 'node:crypto';
import type { JsonObject } from '@bufbuild/protobuf';
import { GrpcCode, GrpcError } from '@sibyl/grpc-client';
import { bech32, makeHash } from '../records/identifiers.js';
import { type BlockContext, found, required, type ServiceHandlers } from './service.js';

export const CHAIN_ID = 'sibyl-demo-1';

/** The only validator. */
const VALIDATOR = createHash('sha256').update('the validator').digest().subarray(0, 20);
const VALIDATOR_ADDRESS = bech32('ixovalcons', VALIDATOR);
const CONSENSUS = { block: '11' };

/** `cosmos.base.tendermint.v1beta1.Service`: blocks, validators and the node. */
export function tendermintHandlers(version: string): ServiceHandlers {
  return {
    GetNodeInfo: () => nodeInfo(version),
    GetSyncing: () => ({ syncing: false }),
    GetLatestBlock: (_, { blocks }) => buildBlock({ height: blocks.latest, blocks }),
    GetBlockByHeight: (request, { blocks }) => buildBlock(resolveBlock(request, blocks)),
    GetLatestValidatorSet: (_, { blocks }) => validatorsAt(blocks.latest),
    GetValidatorSetByHeight: (request, { blocks }) =>
      validatorsAt(resolveBlock(request, blocks).height),
  };
}

function nodeInfo(version: string): JsonObject {
  return {
    default_node_info: {
      protocol_version: { p2p: '8', ...CONSENSUS },
      default_node_id: VALIDATOR.toString('hex'),
      listen_addr: 'tcp://127.0.0.1:26656',
      network: CHAIN_ID,
      version: '0.38.17',
      channels: Buffer.from([0x40, 0x20, 0x21, 0x22, 0x23]).toString('base64'),
      moniker: 'demo',
      other: { tx_index: 'off', rpc_address: 'tcp://127.0.0.1:26657' },
    },
    application_version: {
      name: 'sibyl-demo-chain',
      app_name: 'sibyl-demo-chain',
      version,
      cosmos_sdk_version: 'v0.50.13',
    },
  };
}

/** Reads the block of a request; it must exist. */
function resolveBlock({ height: asked }: JsonObject, blocks: BlockContext['blocks']): BlockContext {
  const height = Number(asked ?? 0);
  const { latest, earliest } = blocks;
  if (height > latest) {
    const text = `block ${height} is not there yet, the latest is ${latest}`;
    throw new GrpcError(GrpcCode.invalidArgument, text);
  }
  if (height >= earliest) return { height, blocks };
  const text = `block ${height} is not kept, the earliest is ${earliest}`;
  throw new GrpcError(GrpcCode.notFound, text);
}

function buildBlock({ height, blocks }: BlockContext): JsonObject {
  const header = buildHeader({ height, blocks });
  const last_commit = buildCommit({ height: height - 1, blocks });
  const proposer = VALIDATOR.toString('base64');
  return {
    block_id: blockId(height),
    block: { header: { ...header, proposer_address: proposer }, data: {}, last_commit },
    sdk_block: {
      header: { ...header, proposer_address: VALIDATOR_ADDRESS },
      data: {},
      last_commit,
    },
  };
}

function buildHeader({ height, blocks }: BlockContext) {
  return {
    version: CONSENSUS,
    chain_id: CHAIN_ID,
    height: String(height),
    time: blocks.getTime(height).toISOString(),
    last_block_id: blockId(height - 1),
    last_commit_hash: makeHash(`commit ${height - 1}`),
    data_hash: makeHash(''),
    validators_hash: makeHash('validators'),
    next_validators_hash: makeHash('validators'),
    consensus_hash: makeHash('consensus'),
    app_hash: makeHash(`state ${height - 1}`),
    last_results_hash: makeHash(''),
    evidence_hash: makeHash(''),
  };
}

function buildCommit({ height, blocks }: BlockContext) {
  return {
    height: String(height),
    block_id: blockId(height),
    signatures: [
      {
        block_id_flag: 'BLOCK_ID_FLAG_COMMIT',
        validator_address: VALIDATOR.toString('base64'),
        timestamp: blocks.getTime(height).toISOString(),
        signature: makeHash(`signature ${height}`),
      },
    ],
  };
}

function blockId(height: number) {
  const part_set_header = { total: 1, hash: makeHash(`parts ${height}`) };
  return { hash: makeHash(`block ${height}`), part_set_header };
}

function validatorsAt(height: number): JsonObject {
  const pub_key = { '@type': '/cosmos.crypto.ed25519.PubKey', key: makeHash('the validator') };
  return {
    block_height: String(height),
    validators: [{ address: VALIDATOR_ADDRESS, pub_key, voting_power: '1000' }],
    pagination: { total: '1' },
  };
}

/** `cosmos.base.node.v1beta1.Service`: the configuration and the height of the node. */
export const nodeHandlers: ServiceHandlers = {
  Config: (_, { blocks }) => ({
    minimum_gas_price: '0.025uixo',
    pruning_keep_recent: String(blocks.latest - blocks.earliest + 1),
    pruning_interval: '1',
  }),
  Status: (_, { height, blocks }) => ({
    earliest_store_height: String(blocks.earliest),
    height: String(height),
    timestamp: blocks.getTime(height).toISOString(),
    app_hash: makeHash(`state ${height}`),
    validator_hash: makeHash('validators'),
  }),
};

/** Epochs begin with the first block and last this many seconds. */
const EPOCHS = [
  { identifier: 'hour', seconds: 3600 },
  { identifier: 'day', seconds: 86_400 },
  { identifier: 'week', seconds: 604_800 },
];

type Epoch = (typeof EPOCHS)[number];

function countEpochs({ seconds }: Epoch, { height, blocks }: BlockContext): number {
  const elapsed = blocks.getTime(height).getTime() - blocks.getTime(1).getTime();
  return Math.floor(elapsed / 1000 / seconds) + 1;
}

function buildEpochInfo(epoch: Epoch, moment: BlockContext) {
  const { identifier, seconds } = epoch;
  const { blocks } = moment;
  const started = blocks.getTime(1).getTime();
  const current = countEpochs(epoch, moment);
  const since = started + (current - 1) * seconds * 1000;
  const msPerBlock = started - blocks.getTime(0).getTime();
  return {
    identifier,
    start_time: new Date(started).toISOString(),
    duration: `${seconds}s`,
    current_epoch: String(current),
    current_epoch_start_time: new Date(since).toISOString(),
    epoch_counting_started: true,
    current_epoch_start_height: String(1 + Math.ceil((since - started) / msPerBlock)),
  };
}

export const epochsHandlers: ServiceHandlers = {
  EpochInfos: (_, moment) => ({ epochs: EPOCHS.map((epoch) => buildEpochInfo(epoch, moment)) }),
  CurrentEpoch(request, moment) {
    const identifier = required(request, 'identifier');
    const epoch = found(EPOCHS, (one) => one.identifier === identifier, `epoch ${identifier}`);
    return { current_epoch: String(countEpochs(epoch, moment)) };
  },
};
