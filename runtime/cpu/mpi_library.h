// mpi.h as this runtime uses it: the C interface. The C++ one, which some libraries add, was removed from MPI in 2012
// and does not compile without warnings.
#pragma once

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
