import { createHash } from 'node:crypto';
import type { JsonObject } from '@bufbuild/protobuf';
import { GrpcCode, GrpcError } from '@sibyl/grpc-client';
import { bech32, hashOf } from '../records/identifiers.js';
import { found, type Moment, required, type ServiceAnswers } from './service.js';

export const CHAIN_ID = 'sibyl-demo-1';

/** Who makes the blocks, all alone. */
const VALIDATOR = createHash('sha256').update('the validator').digest().subarray(0, 20);
const VALIDATOR_ADDRESS = bech32('ixovalcons', VALIDATOR);
const CONSENSUS = { block: '11' };

/** `cosmos.base.tendermint.v1beta1.Service`: blocks, validators, and the node that has them. */
export function tendermintAnswers(version: string): ServiceAnswers {
  return {
    GetNodeInfo: () => nodeInfo(version),
    GetSyncing: () => ({ syncing: false }),
    GetLatestBlock: (_, { blocks }) => blockAt({ height: blocks.latest, blocks }),
    GetBlockByHeight: (request, { blocks }) => blockAt(momentOf(request, blocks)),
    GetLatestValidatorSet: (_, { blocks }) => validatorsAt(blocks.latest),
    GetValidatorSetByHeight: (request, { blocks }) =>
      validatorsAt(momentOf(request, blocks).height),
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

/** The block a request is about, which must be there. */
function momentOf({ height: asked }: JsonObject, blocks: Moment['blocks']): Moment {
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

function blockAt({ height, blocks }: Moment): JsonObject {
  const header = headerOf({ height, blocks });
  const last_commit = commitOf({ height: height - 1, blocks });
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

function headerOf({ height, blocks }: Moment) {
  return {
    version: CONSENSUS,
    chain_id: CHAIN_ID,
    height: String(height),
    time: blocks.timeOf(height).toISOString(),
    last_block_id: blockId(height - 1),
    last_commit_hash: hashOf(`commit ${height - 1}`),
    data_hash: hashOf(''),
    validators_hash: hashOf('validators'),
    next_validators_hash: hashOf('validators'),
    consensus_hash: hashOf('consensus'),
    app_hash: hashOf(`state ${height - 1}`),
    last_results_hash: hashOf(''),
    evidence_hash: hashOf(''),
  };
}

function commitOf({ height, blocks }: Moment) {
  return {
    height: String(height),
    block_id: blockId(height),
    signatures: [
      {
        block_id_flag: 'BLOCK_ID_FLAG_COMMIT',
        validator_address: VALIDATOR.toString('base64'),
        timestamp: blocks.timeOf(height).toISOString(),
        signature: hashOf(`signature ${height}`),
      },
    ],
  };
}

function blockId(height: number) {
  const part_set_header = { total: 1, hash: hashOf(`parts ${height}`) };
  return { hash: hashOf(`block ${height}`), part_set_header };
}

function validatorsAt(height: number): JsonObject {
  const pub_key = { '@type': '/cosmos.crypto.ed25519.PubKey', key: hashOf('the validator') };
  return {
    block_height: String(height),
    validators: [{ address: VALIDATOR_ADDRESS, pub_key, voting_power: '1000' }],
    pagination: { total: '1' },
  };
}

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

/** Epochs begin with the first block and last this many seconds. */
const EPOCHS = [
  { identifier: 'hour', seconds: 3600 },
  { identifier: 'day', seconds: 86_400 },
  { identifier: 'week', seconds: 604_800 },
];

type Epoch = (typeof EPOCHS)[number];

function numberOf({ seconds }: Epoch, { height, blocks }: Moment): number {
  const elapsed = blocks.timeOf(height).getTime() - blocks.timeOf(1).getTime();
  return Math.floor(elapsed / 1000 / seconds) + 1;
}

function infoOf(epoch: Epoch, moment: Moment) {
  const { identifier, seconds } = epoch;
  const { blocks } = moment;
  const started = blocks.timeOf(1).getTime();
  const current = numberOf(epoch, moment);
  const since = started + (current - 1) * seconds * 1000;
  const msPerBlock = started - blocks.timeOf(0).getTime();
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

export const epochsAnswers: ServiceAnswers = {
  EpochInfos: (_, moment) => ({ epochs: EPOCHS.map((epoch) => infoOf(epoch, moment)) }),
  CurrentEpoch(request, moment) {
    const identifier = required(request, 'identifier');
    const epoch = found(EPOCHS, (one) => one.identifier === identifier, `epoch ${identifier}`);
    return { current_epoch: String(numberOf(epoch, moment)) };
  },
};
