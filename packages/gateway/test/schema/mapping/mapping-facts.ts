import type { Facts } from '../facts.js';

const dec = { type: 'string', customtype: 'cosmossdk.io/math.LegacyDec', nullable: false };
const int = { type: 'string', customtype: 'cosmossdk.io/math.Int', nullable: false };

/** The messages and enums that the rows of the mapping use. */
export const MAPPING_FACTS = {
  messages: {
    'cosmos.base.v1beta1.Coin': [
      { no: 1, name: 'denom', type: 'string' },
      { no: 2, name: 'amount', ...int },
    ],
    'cosmos.staking.v1beta1.Delegation': [
      { no: 1, name: 'delegator_address', type: 'string' },
      { no: 2, name: 'validator_address', type: 'string' },
      { no: 3, name: 'shares', ...dec },
    ],
    'cosmos.staking.v1beta1.DelegationResponse': [
      { no: 1, name: 'delegation', type: 'cosmos.staking.v1beta1.Delegation', nullable: false },
      { no: 2, name: 'balance', type: 'cosmos.base.v1beta1.Coin', nullable: false },
    ],
    'cosmos.staking.v1beta1.RedelegationEntry': [
      { no: 1, name: 'creation_height', type: 'int64' },
      {
        no: 2,
        name: 'completion_time',
        type: 'google.protobuf.Timestamp',
        stdtime: true,
        nullable: false,
      },
      { no: 3, name: 'initial_balance', ...int },
      { no: 4, name: 'shares_dst', ...dec },
      { no: 5, name: 'unbonding_id', type: 'uint64' },
    ],
    'cosmos.staking.v1beta1.Redelegation': [
      { no: 1, name: 'delegator_address', type: 'string' },
      {
        no: 4,
        name: 'entries',
        type: 'cosmos.staking.v1beta1.RedelegationEntry',
        repeated: true,
        nullable: false,
      },
    ],
    'cosmos.staking.v1beta1.RedelegationEntryResponse': [
      {
        no: 1,
        name: 'redelegation_entry',
        type: 'cosmos.staking.v1beta1.RedelegationEntry',
        nullable: false,
      },
      { no: 4, name: 'balance', ...int },
    ],
    'cosmos.staking.v1beta1.RedelegationResponse': [
      { no: 1, name: 'redelegation', type: 'cosmos.staking.v1beta1.Redelegation', nullable: false },
      {
        no: 2,
        name: 'entries',
        type: 'cosmos.staking.v1beta1.RedelegationEntryResponse',
        repeated: true,
        nullable: false,
      },
    ],
    'test.Leaf': [
      { no: 1, name: 'id', type: 'string' },
      { no: 2, name: 'count', type: 'uint64' },
    ],
    'test.Branch': [
      { no: 1, name: 'leaf', type: 'test.Leaf', nullable: false },
      { no: 2, name: 'maybe', type: 'test.Leaf' },
      { no: 3, name: 'leaves', type: 'test.Leaf', repeated: true },
    ],
    'test.Camel': [
      { no: 1, name: 'nextPageKey', type: 'string' },
      { no: 2, name: 'snake_case', type: 'string' },
    ],
    'test.Empty': [],
  },
  enums: {
    'cosmwasm.wasm.v1.AccessType': {
      0: 'ACCESS_TYPE_UNSPECIFIED',
      1: 'ACCESS_TYPE_NOBODY',
      3: 'ACCESS_TYPE_EVERYBODY',
      4: 'ACCESS_TYPE_ANY_OF_ADDRESSES',
    },
    'test.Color': { 0: 'NONE', 1: 'RED' },
  },
} satisfies Facts;
