import { Controller, Get, Inject, Query } from '@nestjs/common';
import { type Caller, CurrentCaller, Describe } from '@sibyl/plugin-kit';
import { Ledger } from './ledger/ledger.js';
import { CreditStatement, ReadStatement } from './statement.js';

@Controller('credits')
export class CreditsController {
  constructor(@Inject(Ledger) private readonly ledger: Ledger) {}

  @Get()
  @Describe({ summary: "The caller's balance and last entries", reply: CreditStatement })
  read(
    @CurrentCaller() { did }: Caller,
    @Query({ schema: ReadStatement }) { limit }: ReadStatement,
  ): Promise<CreditStatement> {
    return this.ledger.statement({ owner: did, limit });
  }
}
