import { z } from 'zod';
import { Timestamp, UcanToken, UnixSeconds } from './identifiers.js';

/** The id of a Matrix account, such as `@alice:example.org`. */
const MatrixUserId = z
  .string()
  .max(255)
  .regex(/^@[^\s:]+:[^\s/]+$/, { error: 'must be a Matrix user id, such as @alice:example.org' });

/** Body of `POST /matrix/links`. */
export const CreateMatrixLink = z
  .strictObject({
    userId: MatrixUserId,
    delegation: UcanToken.describe(
      'A delegation of `oracle/run` at `ixo:oracle:<DID of the oracle>:matrix/<user id, percent-encoded>`, signed by the user for this oracle',
    ),
  })
  .meta({ id: 'CreateMatrixLink' });
export type CreateMatrixLink = z.infer<typeof CreateMatrixLink>;

/** A Matrix account of the caller. */
export const MatrixLink = z
  .object({
    userId: z.string(),
    status: z.enum(['pending', 'linked']).describe('`pending`: the account has not sent the code'),
    oracleUserId: z.string().optional().describe('The account of the oracle, to send the code to'),
    resource: z.string().describe('What its delegation is for'),
    expiration: UnixSeconds.optional().describe('When the delegation expires'),
    code: z.string().optional().describe('What the account has to send to the oracle; shown once'),
    codeExpiresAt: Timestamp.optional(),
  })
  .meta({ id: 'MatrixLink' });
export type MatrixLink = z.infer<typeof MatrixLink>;

/** Reply of `GET /matrix/links`. */
export const MatrixLinkList = z
  .object({ links: z.array(MatrixLink) })
  .meta({ id: 'MatrixLinkList' });
export type MatrixLinkList = z.infer<typeof MatrixLinkList>;

/** Reply of `DELETE /matrix/links/:userId`. */
export const MatrixLinkDeleted = z
  .object({ message: z.string() })
  .meta({ id: 'MatrixLinkDeleted' });
export type MatrixLinkDeleted = z.infer<typeof MatrixLinkDeleted>;
