import { Controller, Delete, Get, Inject, Param, Query } from '@nestjs/common';
import { type Caller, CurrentCaller, Describe, OracleError } from '@sibyl/plugin-kit';
import { FactForgotten, FactPage, FactStore, ListFacts } from './fact-store.js';

@Controller('memory')
export class MemoryController {
  constructor(@Inject(FactStore) private readonly facts: FactStore) {}

  @Get()
  @Describe({ summary: 'What the oracle remembers of the caller, newest first', reply: FactPage })
  async list(
    @CurrentCaller() { did: owner }: Caller,
    @Query({ schema: ListFacts }) page: ListFacts,
  ): Promise<FactPage> {
    const [facts, total] = await Promise.all([
      this.facts.list({ owner, ...page }),
      this.facts.count({ owner }),
    ]);
    return { facts, total };
  }

  @Delete(':id')
  @Describe({ summary: 'Forget a fact', reply: FactForgotten, errors: ['not_found'] })
  async forget(
    @CurrentCaller() { did: owner }: Caller,
    @Param('id') id: string,
  ): Promise<FactForgotten> {
    if (!(await this.facts.remove({ owner, id }))) throw new OracleError('not_found');
    return { message: 'The fact is forgotten' };
  }
}
